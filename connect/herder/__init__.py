"""The herder: from wishes in a topic to tasks that run

`state` folds the topics, `commands` turns REST writes into records, `machine` compares what should be with what is and
says what to do about it; all three are pure. `service` joins them to Kafka and to the task processes.
"""
