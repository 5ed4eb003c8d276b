"""Source offsets as the REST API shows and changes them"""

from tidemill.connect.herder.offsets import OffsetBook, flat


def book() -> OffsetBook:
    book = OffsetBook()
    assert book.apply(b'["c",{"b":1,"a":2}]', b'{"pos":1}')
    assert book.apply(b'["c",{"file":"x"}]', b'{"pos":2}')
    assert book.apply(b'["other",{"file":"x"}]', b'{"pos":3}')
    return book


def test_the_last_word_on_a_partition_counts() -> None:
    offsets = book()
    offsets.apply(b'["c",{"file":"x"}]', b'{"pos":9}')
    assert [(stored.partition, stored.offset) for stored in offsets.stored("c")] == [
        ({"b": 1, "a": 2}, {"pos": 1}),
        ({"file": "x"}, {"pos": 9}),
    ]
    offsets.apply(b'["c",{"file":"x"}]', None)
    assert len(offsets.stored("c")) == 1
    assert offsets.stored("nobody") == []


def test_what_is_no_source_offset_is_refused() -> None:
    assert not book().apply(b"null", b"{}")
    assert not book().apply(None, b"{}")
    deep = b'{"a":' * 300 + b"1" + b"}" * 300
    assert not book().apply(b'["c",%b]' % deep, b"{}")


def test_a_changed_partition_keeps_its_key_bytes() -> None:
    records = book().altered("c", [({"a": 2, "b": 1}, {"pos": 5}), ({"new": True}, None)])
    assert records == [(b'["c",{"b":1,"a":2}]', b'{"pos":5}'), (b'["c",{"new":true}]', None)]


def test_reset_forgets_every_partition_of_the_connector() -> None:
    assert book().reset("c") == [(b'["c",{"b":1,"a":2}]', None), (b'["c",{"file":"x"}]', None)]


def test_only_flat_maps_are_legal() -> None:
    assert flat({"a": 1, "b": None, "c": "x", "d": 1.5, "e": True})
    assert not flat({"a": {}}) and not flat({"a": []})


def test_a_number_that_json_cannot_say_is_refused() -> None:
    """It would be stored as null."""
    assert not any(flat({"a": number}) for number in (float("nan"), float("inf"), float("-inf")))
