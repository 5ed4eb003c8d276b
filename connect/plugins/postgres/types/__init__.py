"""How the text of a value becomes JSON, one family of types a file

`resolve.conversion` is the door: type, modifier and the connector's modes in, a `Conversion` out. The session settings
of `connection` (UTC, ISO dates, hexadecimal bytes) make the text of a value the same in a snapshot and in the stream,
so both use the same conversions.
"""
