"""What may be asked to be installed, and what may not"""

import pytest

from tidemill.connect.environments.requirements import BadRequirements, Pinned, parse, together, unlisted

A, B = "sha256:" + "a" * 64, "sha512:" + "b" * 128

COMPILED = f"""\
# made by a tool
web_orders==1.2.0 \\
    --hash={A} \\
    --hash={B}
    # via nothing
psycopg[binary]==3.2 ; python_version >= "3.11" --hash={A}   # inline
"""


def test_what_tools_write_is_read_as_pip_reads_it() -> None:
    orders, driver = parse(COMPILED)
    assert (orders.name, orders.version, orders.hashes) == ("web-orders", "1.2.0", (A, B))
    assert orders.line == f"web_orders==1.2.0 --hash={A} --hash={B}"
    assert (driver.name, driver.line) == ("psycopg", f"psycopg[binary]==3.2 --hash={A}"), "its marker is judged here"


def test_what_is_not_for_this_python_is_left_out() -> None:
    (orders,) = parse(
        f"a==1 ; python_version < '3' --hash={A}\norders==1 ; python_version < '3' --hash={A}\norders==2 --hash={A}"
    )
    assert orders.version == "2"
    with pytest.raises(BadRequirements, match="nothing is listed"):
        parse(f"a==1 ; python_version < '3' --hash={A}")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "nothing is listed: write NAME==VERSION --hash=sha256:"),
        ("orders==1.0", "orders==1.0: without a hash: write NAME==VERSION"),
        (f"orders --hash={A}", "not pinned to one version"),
        (f"orders>=1.0 --hash={A}", "not pinned to one version"),
        (f"orders==1.* --hash={A}", "not pinned to one version"),
        (f"orders==1.0,!=1.1 --hash={A}", "not pinned to one version"),
        (f"orders===1.0 --hash={A}", "not pinned to one version"),
        ("orders==1.0 --hash=sha256:abc", "sha256:abc is no hash"),
        ("orders==1.0 --hash=md5:" + "a" * 32, "is no hash"),
        ("orders==1.0 --hash=", "nothing is no hash"),
        (f"orders @ https://example.org/x.whl --hash={A}", "an address is not taken"),
        (f"https://example.org/x.whl --hash={A}", "not a requirement"),
        (f"./x.whl --hash={A}", "not a requirement"),
        ("--index-url https://example.org", "options are not taken"),
        ("-r other.txt", "options are not taken"),
        ("-e .", "options are not taken"),
        (f"orders==1.0 --hash={A} --config-settings=x", "no option but --hash is taken"),
        (f"orders==1.0 --hash={A} -i x", "no option but --hash is taken"),
        (f"orders==1.0 --hash={A}\nOrders==1.1 --hash={A}", "orders is listed twice"),
        (f"Tidemill==1.0 --hash={A}", "comes from the worker that uses the environment: leave it out"),
        (f'orders==1.0 ; "a" == "${{SECRET}}" --hash={A}', "nothing but ASCII, and no $"),
        (f"orders==1.0 ; os_name == '\u00e9' --hash={A}", "nothing but ASCII, and no $"),
        (f"orders==1.0 ; never_heard_of == 'x' --hash={A}", "not a requirement"),
        (f"orders==1.0 ; {'(' * 485}os_name=='x'{')' * 485} --hash={A}", "not a requirement"),
        (
            f"orders==1.0 ; {' and '.join(['os_name'] * 2000)} --hash={A}",
            "longer than 1000 characters without its hashes",
        ),
        ("#\n" * 60_000, "more than 50000 lines"),
        ("\n".join(f"p{n}==1 --hash={A}" for n in range(1001)), "more than 1000 packages are listed"),
        (f"orders==1.0{f' --hash={A}' * 1000}", "longer than 50000 characters"),
    ],
)
def test_all_else_is_refused_with_what_to_write(text: str, problem: str) -> None:
    with pytest.raises(BadRequirements) as caught:
        parse(text)
    assert problem in str(caught.value)


def test_what_is_wrong_is_not_repeated_at_length() -> None:
    for line in ("x" * 49_000, "-" * 49_000, f"a==1 --hash={'x' * 49_000}"):
        with pytest.raises(BadRequirements) as caught:
            parse(line)
        assert len(str(caught.value)) < 400


def test_wheels_and_lines_go_by_the_same_rules_together() -> None:
    (one,), (own,) = parse(f"a==1 --hash={A}"), [Pinned("tidemill", "1", (A,), "tidemill @ file:///t.whl")]
    assert together([one]) == (one,)
    for pinned, problem in (([one, one], "a is listed twice"), ([one, own], "leave it out")):
        with pytest.raises(BadRequirements, match=problem):
            together(pinned)


def test_every_problem_is_named_at_once() -> None:
    with pytest.raises(BadRequirements) as caught:
        parse(f"a==1\nb --hash={A}\nc==1 --hash={A}")
    assert [line.partition(":")[0] for line in str(caught.value).splitlines()] == ["a==1", "b --hash=sha256"]


def test_only_packages_that_are_listed_are_allowed() -> None:
    names = [each.name for each in parse(COMPILED)]
    assert unlisted(names, ["*"]) == unlisted(names, ["Web_Orders", "psycopg"]) == []
    assert unlisted(names, ["web-orders"]) == ["psycopg"]
    assert unlisted(names, []) == ["web-orders", "psycopg"]
