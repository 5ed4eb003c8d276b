"""One module per API family: a decoded request in, a response out

A handler turns wire messages into calls on the log, the controller or the group coordinator and their answers back
into wire messages; it decides nothing itself. Every module opens with the versions that it serves. Errors are raised
as `tidemill.core.errors.KafkaError` where the whole response fails and become error codes inside the response where one
entry fails.
"""
