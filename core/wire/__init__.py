"""The Kafka wire protocol as data, generated codecs and sans-IO framing

`schemas/*.json` hold the messages, `generate` turns them into classes (`messages/*.py`) and their readers and writers
(`layouts/*.py`), `codec` encodes and decodes any of them by (message, version), `framing` adds size prefixes and
headers, `api` is the table of APIs. Nothing here does IO.
"""
