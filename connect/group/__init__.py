"""Workers that share the work of one Connect cluster

`words` is what they tell each other, as bytes; `machine` decides what one of them may do and when it asks for a round.
Where Apache's workers may be in the group these are `sessioned_words` and `sessioned`, and `incremental` places.
`seat` runs both on a cluster's connections; `lives` knows which lives of workers on this machine are over.
"""
