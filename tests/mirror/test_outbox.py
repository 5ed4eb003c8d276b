"""Batches on their way: order, doubt, and the memory they keep."""

from tidemill.mirror.outbox import Outbox, Parcel
from tidemill.mirror.passthrough import Outgoing


def parcel(target_offset: int, *, needs: int = 0, frame: int = 0, size: int = 10) -> Parcel:
    item = Outgoing(batch=bytes(size), target_offset=target_offset, records=2, pieces=((target_offset, 2),))
    return Parcel(item=item, needs=needs, frame=frame)


def flying(*parcels: Parcel) -> tuple[Outbox, list[tuple[int, Parcel]]]:
    box = Outbox()
    for one in parcels:
        box.put(one)
    sent = [box.send(100) for _ in parcels]
    return box, [one for one in sent if one is not None]


def return_to(box: Outbox, sent: tuple[int, Parcel], *, in_doubt: bool) -> None:
    landed = box.land(sent[0])
    assert landed is sent[1]
    box.take_back(landed, in_doubt=in_doubt)


def queued(box: Outbox) -> list[int]:
    found = []
    while (sent := box.send(100)) is not None:
        found.append(sent[1].item.target_offset)
    return found


def test_a_batch_waits_for_its_map_write_and_so_do_those_behind_it() -> None:
    box = Outbox()
    box.put(parcel(0, needs=2))
    box.put(parcel(2, needs=1))
    assert box.send(1) is None
    assert queued(box) == [0, 2]


def test_what_is_in_doubt_is_sent_again_and_what_is_behind_it_and_was_refused_is_not() -> None:
    box, sent = flying(parcel(0), parcel(2), parcel(4))
    for one, in_doubt in zip(sent, (False, True, False), strict=True):
        return_to(box, one, in_doubt=in_doubt)
    assert box.resume(0)
    assert queued(box) == [0, 2]


def test_what_has_landed_is_forgotten() -> None:
    box, sent = flying(parcel(0), parcel(2))
    for one in sent:
        return_to(box, one, in_doubt=True)
    assert box.resume(2)
    assert queued(box) == [2]


def test_doubt_survives_another_attempt_that_was_refused() -> None:
    box, (sent,) = flying(parcel(0))
    return_to(box, sent, in_doubt=True)
    box.resume(0)
    again = box.send(0)
    assert again is not None
    return_to(box, again, in_doubt=False)
    box.resume(0)
    box.drop_queue()
    assert box.resume(0)
    assert queued(box) == [0]


def test_what_does_not_follow_on_the_log_end_is_told() -> None:
    box, (sent,) = flying(parcel(4))
    return_to(box, sent, in_doubt=True)
    assert not box.resume(0)
    assert box.is_empty
    assert box.buffered_bytes == 0


def test_damaged_bytes_and_what_was_sent_behind_them_are_forgotten() -> None:
    box, sent = flying(parcel(0), parcel(2), parcel(4))
    return_to(box, sent[0], in_doubt=True)
    box.land(sent[1][0])
    box.spoil(sent[1][1])
    return_to(box, sent[2], in_doubt=False)
    assert box.resume(0)
    assert queued(box) == [0]


def test_it_is_told_when_what_is_forgotten_was_in_doubt() -> None:
    box, sent = flying(parcel(0), parcel(2))
    box.land(sent[0][0])
    box.spoil(sent[0][1])
    return_to(box, sent[1], in_doubt=True)
    assert not box.resume(0)
    assert box.is_empty
    assert box.resume(0), "once"


def test_an_answer_is_let_go_of_with_its_last_batch() -> None:
    box = Outbox()
    box.open(5)
    box.put(parcel(0, frame=5))
    box.put(parcel(2, frame=5))
    box.put(parcel(4))
    box.close(5)
    assert (box.released(), box.own_bytes, box.buffered_bytes) == ([], 10, 30)
    sent = [one for one in (box.send(0), box.send(0)) if one is not None]
    box.land(sent[0][0])
    assert box.released() == []
    box.land(sent[1][0])
    assert box.released() == [5]
    assert box.released() == []
    assert (box.own_bytes, box.buffered_bytes) == (10, 10)


def test_nobody_waits_for_an_unknown_answer() -> None:
    assert Outbox().land(3) is None
