"""`tidemill cluster`: several brokers as one

`status` is pure: what is wrong, by what the brokers say. `asking` asks them, `files` has the settings of new nodes,
`cli` is the command. Replicas on the move: `moving` is pure, `reassigning` asks and acts, `balance_cli` is the command.
"""
