"""Who a peer is, and how what is said to it is kept from others

Pure parts: PEM (`pem`), names in certificates (`certificate`), settings of TLS by Kafka's names (`tls_settings`) and
by those of its clients (`client_tls`). What needs OpenSSL is `tidemill.core.runtime.tls`.
"""
