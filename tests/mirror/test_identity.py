"""Producer ids: stable for ever, apart from one another, recognisable."""

from tidemill.mirror.identity import RESERVED, cluster_slot, origin_slot, producer_id


def test_ids_never_change() -> None:
    # Written down once: a change would make every running mirror refuse its own topics.
    assert producer_id("A", "B", "A.orders", 0) == 0x4746F87C570108A1
    assert cluster_slot("A") == 0x1D1B


def test_ids_differ_by_flow_topic_and_partition() -> None:
    ids = {
        producer_id(source, target, topic, partition)
        for source in "AB"
        for target in "CD"
        for topic in ("x", "y")
        for partition in range(50)
    }
    assert len(ids) == 400


def test_parts_of_a_name_do_not_run_together() -> None:
    assert producer_id("A", "BC", "t", 1) != producer_id("AB", "C", "t", 1)
    assert producer_id("A", "B", "t1", 1) != producer_id("A", "B", "t", 11)


def test_the_origin_can_be_read_off_an_id() -> None:
    found = producer_id("east", "west", "orders", 7)
    assert RESERVED <= found < 2**63
    assert origin_slot(found) == cluster_slot("east")
    assert origin_slot(4711) is None


def test_every_generation_has_an_id_of_its_own_and_the_first_that_of_before() -> None:
    ids = [producer_id("A", "B", "t", 0, generation) for generation in range(4)]
    assert ids[0] == producer_id("A", "B", "t", 0)
    assert len(set(ids)) == 4
    assert {origin_slot(one) for one in ids} == {cluster_slot("A")}
