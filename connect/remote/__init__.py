"""Tasks in processes of their own

Forked by nurseries, watched by a guardian, and spoken to over a pair of sockets.
"""
