"""Random records for Hypothesis"""

from hypothesis import strategies as st

from tidemill.core.records.record import NewRecord

blobs = st.none() | st.binary(max_size=8) | st.sampled_from([b"", b"x" * 63, b"x" * 64, b"x" * 8191, b"x" * 8192])
headers = st.lists(st.tuples(st.text(max_size=4), blobs), max_size=2).map(tuple)
timestamps = st.integers(0, 2**41) | st.sampled_from([0, 1_700_000_000_000])
new_records = st.builds(NewRecord, timestamp=timestamps, key=blobs, value=blobs, headers=headers)
record_lists = st.lists(new_records, min_size=1, max_size=5)
