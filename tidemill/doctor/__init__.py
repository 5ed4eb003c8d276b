"""`tidemill doctor`: what is wrong here or on the way to the cluster

`judge` is pure: it turns facts into findings. `machine` and `cluster` gather the facts; `cli` is the command.
"""
