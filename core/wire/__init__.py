"""The Kafka wire protocol as data, codecs made from it and sans-IO framing

`schemas/*.json` hold the messages, `generate` turns them into classes (`messages/*.py`), `compiled` makes their readers
and writers when they are first used, `codec` encodes and decodes any message by (message, version), `framing` adds size
prefixes and headers, `api` is the table of APIs. Nothing here does IO, except that a schema is read as a module is.
"""
