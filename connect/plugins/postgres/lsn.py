"""Log sequence numbers

A position in the write-ahead log is a 64-bit number; PostgreSQL writes it as two hexadecimal halves, `16/B374D848`.
Inside, positions are plain integers, as in Debezium's offsets.
"""


def parse_lsn(text: str) -> int:
    """Return the number of `16/B374D848`."""
    high, slash, low = text.partition("/")
    if not slash:
        raise ValueError(f"not a log sequence number: {text!r}")
    return int(high, 16) << 32 | int(low, 16)


def format_lsn(lsn: int) -> str:
    """Return the text of a position as PostgreSQL writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"
