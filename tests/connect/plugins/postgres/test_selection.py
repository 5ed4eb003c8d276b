"""Include and exclude lists"""

import pytest

from tidemill.connect.plugins.postgres.selection import Filter, Selection, key_columns, split_patterns


def test_patterns_are_anchored_and_ignore_case() -> None:
    only = Selection(tables=Filter.of(r"public\.orders, shop\..*"))
    assert only.table("public", "ORDERS")
    assert only.table("shop", "anything")
    assert not only.table("public", "orders_old")
    assert not only.table("apublic", "orders")


def test_exclude_lists_leave_out() -> None:
    rest = Selection(schemas=Filter.of("", "audit"), tables=Filter.of("", "public.secret"))
    assert rest.table("public", "orders")
    assert not rest.table("public", "secret")
    assert not rest.table("audit", "orders")


def test_system_schemas_are_never_captured() -> None:
    assert not Selection(tables=Filter.of(".*")).table("pg_catalog", "pg_class")


def test_columns_are_named_with_their_table() -> None:
    shown = Selection(columns=Filter.of("", r"public\.users\.(password|ssn)"))
    assert not shown.column("public", "users", "password")
    assert shown.column("public", "accounts", "password")


def test_a_comma_inside_a_pattern_is_escaped() -> None:
    assert split_patterns(r"a{1\,2}, b ,") == ["a{1,2}", "b"]


def test_keys_are_chosen_per_table() -> None:
    chosen = Selection(keys=key_columns(r"public.orders:b,a; shop\.(.*):id"))
    assert chosen.key("public", "orders") == ("b", "a")
    assert chosen.key("shop", "items") == ("id",)
    assert chosen.key("other", "items") is None


@pytest.mark.parametrize("text", ["orders", "orders:", ":a"])
def test_unreadable_keys_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"message\.key\.columns"):
        key_columns(text)
