"""One member of the metadata quorum, as Kafka's KRaft has it

`voters` says who counts, `election` what a member must not forget; `machine` decides, on the state in `member`, out of
`events` and in `actions`, with `messages` to its peers. What it counts and waits for is in small parts of its own:
`campaign` (votes), `leadership` (fetches), `download` (a snapshot), `peers` (requests under way), `voter_history` and
`voter_changes` (who votes), `log_view` (where logs part).
"""

from typing import TYPE_CHECKING

from tidemill.broker.quorum.raft.election import ElectionState
from tidemill.broker.quorum.raft.voters import Voter, VoterSet

if TYPE_CHECKING:  # whoever needs voters only does not load the rest
    from tidemill.broker.quorum.raft.machine import QuorumMachine as QuorumMachine

__all__ = ["ElectionState", "Voter", "VoterSet"]
