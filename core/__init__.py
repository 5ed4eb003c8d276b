"""Foundations that know nothing of brokers or connectors

Pure parts first (types, errors, configuration tables, the wire protocol, record batches), the shells that touch
clock, disk and sockets last (`tidemill.core.runtime`, `tidemill.core.client`). Nothing here imports `broker`,
`connect`, `mirror` or `spark_sink`; those meet on the wire.
"""
