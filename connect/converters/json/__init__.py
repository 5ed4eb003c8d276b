"""JSON with or without a schema envelope: Kafka Connect's JsonConverter"""

from tidemill.connect.converters.json.envelope import JsonConverter

__all__ = ["JsonConverter"]
