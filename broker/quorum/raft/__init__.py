"""One member of the metadata quorum, as Kafka's KRaft has it

`voters` says who counts, `election` what a member must not forget.
"""

from tidemill.broker.quorum.raft.election import ElectionState
from tidemill.broker.quorum.raft.voters import Voter, VoterSet

__all__ = ["ElectionState", "Voter", "VoterSet"]
