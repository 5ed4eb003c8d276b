"""Real processes, real faults: a cluster that is broken on purpose, and a judge of what its clients saw

`python -m tests.faults --minutes 30 --nodes 3 --seed 7 [--kafka]`, as root.

Each node is a process in a network namespace of its own with a disk of its own (`hosts`, `disks`), ours or Apache
Kafka's (`nodes`). A plan of faults follows from a seed (`plan`) and is carried out (`nemesis`) while three client
libraries write and read (`writers`, `readers`, `FaultClient.java`) and keep a history of what they asked for and what
they were told (`history`). Afterwards every partition is read from its beginning, and two pure functions judge:
`checker` says what was lost, doubled, changed or seen in the wrong order, `gaps` how long nobody was told anything.

The same kit breaks Apache Kafka: what it finds there is its own fault, or a known one of Kafka's.
"""
