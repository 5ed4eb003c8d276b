"""Programs that read or change a data folder while no broker runs in it

`tidemill log` is their door. They know the broker's formats (`tidemill.broker.log`, `tidemill.broker.quorum`); nothing
of a running broker knows them.
"""
