"""The records that compaction keeps, copied as the bytes they were

Records hold offset and time relative to the header of their batch, which compaction leaves alone, so what stays is
copied and nothing is decoded. Only a new base timestamp (`rebased`) makes records be written anew, and of each only its
length and its timestamp. `ends` is the column of `tidemill.core.records.columns`: record i is the bytes from
`ends[i - 1]` (or 0) to `ends[i]`.
"""

from collections.abc import Sequence

from tidemill.core.records.varint import decode_varint, encode_varint


def kept(data: bytes, ends: Sequence[int], keep: Sequence[bool]) -> bytes:
    """The bytes of the records that `keep` says stay; neighbours are copied together."""
    pieces = []
    start = at = 0
    for end, stays in zip(ends, keep, strict=True):
        if not stays:
            if start < at:
                pieces.append(data[start:at])
            start = end
        at = end
    pieces.append(data[start:at])
    return b"".join(pieces)


def rebased(data: bytes, ends: Sequence[int], keep: Sequence[bool], deltas: Sequence[int]) -> bytes:
    """The same with other timestamp deltas, one for every record, kept or not."""
    pieces: list[bytes] = []
    start = 0
    for end, stays, delta in zip(ends, keep, deltas, strict=True):
        if stays:
            _, at = decode_varint(data, start)
            _, rest = decode_varint(data, at + 1)
            body = data[at : at + 1] + encode_varint(delta) + data[rest:end]
            pieces += (encode_varint(len(body)), body)
        start = end
    return b"".join(pieces)
