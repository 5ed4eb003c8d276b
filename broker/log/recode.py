"""A produced batch in the codec that its topic wants

With `compression.type=producer`, the default, batches stay the bytes that arrived. Any other value is a promise about
everything in the topic, so a batch of another codec is compressed anew as it comes in. Its header keeps all it says but
codec, length and CRC; its records have been walked before (`examination`), since nothing else would look at them before
a consumer does.
"""

from tidemill.core.errors import MessageTooLarge
from tidemill.core.records.batch import HEADER_BYTES, with_records
from tidemill.core.records.compression import CODECS, compress
from tidemill.core.runtime.disk import ByteBuffer

from .config import LogConfig

KEEP = "producer"
_UNCOMPRESSED = "uncompressed"  # Kafka's word for the codec `none` in topic settings


def wanted_codec(config: LogConfig) -> int | None:
    """The number of the codec that all batches of a topic shall have; None if each keeps its own."""
    name = config.compression_type
    if name == KEEP:
        return None
    return CODECS["none" if name == _UNCOMPRESSED else name]


def recoded(batch: ByteBuffer, records: bytes | memoryview, codec: int, config: LogConfig) -> bytearray:
    """`batch` with these, its records, compressed by `codec`; raises MessageTooLarge."""
    if codec == CODECS["none"]:
        _check_size(len(records), config)  # before they are copied
    levels = {CODECS["gzip"]: config.compression_gzip_level, CODECS["zstd"]: config.compression_zstd_level}
    packed = compress(codec, records, levels.get(codec))
    _check_size(len(packed), config)
    return with_records(batch[:HEADER_BYTES], packed, codec)


def _check_size(records_bytes: int, config: LogConfig) -> None:
    if HEADER_BYTES + records_bytes > config.max_message_bytes:
        raise MessageTooLarge(
            f"record batch of {HEADER_BYTES + records_bytes} bytes with compression.type={config.compression_type}; "
            f"the topic allows {config.max_message_bytes}"
        )
