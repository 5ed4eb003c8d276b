"""From a certificate's name to a principal, by the examples of KIP-371"""

import pytest

from tidemill.broker.principals import ANONYMOUS, NoRuleMatches, Principal, parse_rules, principal_of

KIP = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,"
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U,"
    "DEFAULT"
)


@pytest.mark.parametrize(
    ("name", "principal"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "Duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke,OU=JavaSoft,O=Sun Microsystems", "DUKE"),
        ("OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
    ],
)
def test_the_first_rule_that_matches_decides(name: str, principal: str) -> None:
    assert principal_of(name, parse_rules(KIP)) == Principal("User", principal)


def test_whoever_no_rule_is_about_is_nobody() -> None:
    with pytest.raises(NoRuleMatches, match="no rule of"):
        principal_of("CN=b", parse_rules("RULE:^CN=a$/a/"))


def test_no_rule_at_all_is_the_default_one() -> None:
    assert str(principal_of("CN=a", parse_rules(""))) == "User:CN=a"
    assert str(ANONYMOUS) == "User:ANONYMOUS"


@pytest.mark.parametrize(
    ("rule", "name", "result"),
    [
        ("RULE:^CN=(.*)$/$1$2/", "CN=a", "a$2"),  # there is no second group
        ("RULE:^CN=(.*)$/$10/", "CN=a", "a0"),
        (r"RULE:^CN=(.*)\/(.*)$/$2\/$1/", "CN=a/b", "b/a"),
        ("RULE:^(CN=)?(.*)$/$1$2/U", "x", "X"),
        (r"RULE:^CN=(.*)$/\$1/", "CN=a", "$1"),
    ],
)
def test_groups_and_what_only_looks_like_them(rule: str, name: str, result: str) -> None:
    assert principal_of(name, parse_rules(rule)).name == result


@pytest.mark.parametrize(
    "text",
    ["default", "DEFAUL", "RULE:", "RULE:^CN=(.*?)/$1", "RULE:a/b/X,DEFAULT", "DEFAULT,x", "RULE:(/x/", "RULE:a/b/L/U"],
)
def test_what_is_no_rule_is_said(text: str) -> None:
    with pytest.raises(ValueError, match="Invalid rule"):
        parse_rules(text)
