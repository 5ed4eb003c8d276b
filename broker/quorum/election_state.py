"""The file of an election's state, beside the metadata log

`election-state` in the metadata log's folder has the fields of Kafka's own file, as JSON, under a name of its own: a
folder with Kafka's is Kafka's. It is replaced as a whole and synced, name and contents, before `store` returns, so
that a member of the quorum never says what it may forget. A file that cannot be read is no reason to begin anew: who
votes a second time in an epoch elects a second leader.

A quorum must elect also where nothing fits on the disks any more, or nobody could delete what fills them. So a file
beside it keeps room for the next state: on a full disk it goes first, and comes back in the place of the last state.

A folder without the file has not taken part in an election since its log was written; it begins in the epoch of its
log's last batch. The log never has an epoch that is newer than the file's, for the file was synced first.
"""

import contextlib
import json
from typing import Any, Final

from tidemill.broker.quorum.loading import MetadataCorruptError
from tidemill.broker.quorum.raft.election import ElectionState
from tidemill.broker.quorum.store import ELECTION_STATE as ELECTION_STATE
from tidemill.broker.quorum.store import FOLDER, MetadataStoreError
from tidemill.core.ids import decode_id, encode_id
from tidemill.core.runtime.disk import DISK_FULL, Directory

ROOM: Final = "election-state.room"
ROOM_BYTES: Final = 8192
"""A block of the disk for the file and one for its name, as file systems have them."""

_DATA_VERSION: Final = 1


class ElectionStateFile:
    """One node's memory of elections; one writer at a time."""

    def __init__(self, data: Directory) -> None:
        """`data` is the data folder. Raises OSError."""
        self._directory = data.subdirectory(FOLDER)
        self.failure: str | None = None

    def load(self, log_epoch: int = 0) -> ElectionState:
        """What was stored last; raises MetadataCorruptError, OSError.

        Where nothing was, an epoch of which nothing is known but that the log has it: `log_epoch`, of its last batch.
        """
        self._directory.sync()  # a process that was killed may have put it in place and not have come to this
        self._keep_room()
        try:
            data = self._directory.read(ELECTION_STATE)
        except FileNotFoundError:
            return ElectionState(epoch=max(0, log_epoch))
        try:
            state = decode(data)
        except ValueError as error:
            raise self._refused(str(error)) from None
        if state.epoch < log_epoch:
            raise self._refused(f"it knows of epoch {state.epoch}, the log beside it has epoch {log_epoch}")
        return state

    def _refused(self, why: str) -> MetadataCorruptError:
        return MetadataCorruptError(
            f"The election state {self._directory.path}/{ELECTION_STATE} cannot be used: {why}. "
            "Restore the file from a backup of this moment; without one, take this node out of the quorum and let it "
            "join again with an empty folder. Starting without it, the node might vote twice."
        )

    def store(self, state: ElectionState) -> None:
        """Return once `state` is on the disk; blocks. Raises MetadataStoreError, after which nothing more is taken."""
        if self.failure is not None:
            raise MetadataStoreError(self.failure)
        try:
            self._replace(encode(state))
        except OSError as error:
            self.failure = f"the election state could not be stored ({error}): repair the disk and start again"
            raise MetadataStoreError(error.errno, self.failure) from error

    def _replace(self, data: bytes) -> None:
        try:
            self._directory.replace(ELECTION_STATE, data)
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            self._directory.remove(ROOM)
            self._directory.sync()
            self._directory.replace(ELECTION_STATE, data)
        self._keep_room()

    def _keep_room(self) -> None:
        """Set room aside for the next state, unless it is, as far as there is any."""
        with contextlib.suppress(OSError):
            file = self._directory.open(ROOM) if self._directory.exists(ROOM) else self._directory.create(ROOM)
            try:
                if file.size() < ROOM_BYTES:
                    file.write_at(0, bytes(ROOM_BYTES))
            finally:
                file.close()


def encode(state: ElectionState) -> bytes:
    """The contents of the file."""
    fields = {
        "leaderId": state.leader_id,
        "leaderEpoch": state.epoch,
        "votedId": state.voted_id,
        "votedDirectoryId": encode_id(state.voted_directory_id),
        "data_version": _DATA_VERSION,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def decode(data: bytes) -> ElectionState:
    """The state in a file's contents; raises ValueError."""
    fields = json.loads(data.decode())
    if not isinstance(fields, dict):
        raise ValueError("it is not a JSON object")
    if fields.get("data_version") != _DATA_VERSION:
        raise ValueError(f"its data_version is {fields.get('data_version')!r}, this version knows {_DATA_VERSION}")
    voted_directory = fields.get("votedDirectoryId")
    if not isinstance(voted_directory, str):
        raise ValueError("it has no votedDirectoryId")
    return ElectionState(
        epoch=_number(fields, "leaderEpoch"),
        leader_id=_number(fields, "leaderId"),
        voted_id=_number(fields, "votedId"),
        voted_directory_id=decode_id(voted_directory),
    )


def _number(fields: dict[str, Any], name: str) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"it has no {name}")
    return value
