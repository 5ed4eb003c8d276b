"""`tidemill doctor`: what is wrong here or on the way to the cluster

`judge` and `judge_cluster` are pure: they turn facts into findings. `machine`, `cluster` (the way there) and `brokers`
(several of them) gather the facts; `cli` is the command.
"""
