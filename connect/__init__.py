"""Kafka Connect in Python: a worker that is a client of any Kafka cluster

`api` is what plugins see. `herder` decides what should run and supervises it, `remote` gives every task a process,
`tasks` is what runs there. `rest` over `operations` is the API people and tools use; `stores` and `topic_log` keep the
state in Kafka Connect's three topics. `worker` puts it all together, `cli` starts it.
"""
