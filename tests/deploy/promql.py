"""As much of PromQL as our queries use: which metrics they read, and which labels they count on

`read` parses a whole expression, so a typing error is an error here and not in a dashboard at night. What it cannot
parse it refuses; it knows selectors, ranges, offsets, functions, aggregations and binary operators with `on` and
`ignoring`, but no subqueries. The labels of the result are what a legend or an alert's text may name.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

AGGREGATIONS = {"sum", "max", "min", "avg", "count", "topk", "bottomk", "quantile", "group"}
FUNCTIONS = {
    "rate", "increase", "delta", "deriv", "abs", "clamp_min", "time", "histogram_quantile", "changes", "absent",
    "max_over_time", "min_over_time", "avg_over_time", "sum_over_time", "round", "vector", "sort_desc",
}  # fmt: skip
OPERATORS = {"+", "-", "*", "/", "%", "^", "==", "!=", "<", "<=", ">", ">=", "and", "or", "unless"}
EVERYWHERE = frozenset({"job", "instance"})
"""Labels that Prometheus gives to whatever it collects."""

_TOKEN = re.compile(
    r"""(?P<space>\s+)
      | (?P<text>"(?:[^"\\]|\\.)*")
      | (?P<range>\[(?:\d+[smhd]|\$__rate_interval)\])
      | (?P<number>\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w]))
      | (?P<duration>\d+[smhd])
      | (?P<name>[a-zA-Z_][a-zA-Z0-9_:]*)
      | (?P<sign>=~|!~|==|!=|<=|>=|[-+*/%^(){},<>=])""",
    re.VERBOSE,
)


class NotUnderstood(ValueError):
    """The expression is wrong, or uses what is not known here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What an expression reads and gives; `result` is None for a number."""

    metrics: frozenset[str] = frozenset()
    result: frozenset[str] | None = None
    problems: tuple[str, ...] = ()


@dataclass(slots=True)
class _Parser:
    """One expression; `labels_of` gives the labels of a metric, and raises KeyError for one that there is not."""

    expression: str
    labels_of: Callable[[str], frozenset[str]]
    tokens: list[tuple[str, str]] = field(default_factory=list)
    at: int = 0
    metrics: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        place = 0
        while place < len(self.expression):
            match = _TOKEN.match(self.expression, place)
            if match is None:
                raise NotUnderstood(f"{self.expression[place:]!r} in {self.expression}")
            place = match.end()
            if match.lastgroup != "space":
                self.tokens.append((str(match.lastgroup), match.group()))

    # -- tokens

    def peek(self) -> str:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else ""

    def take(self, *expected: str) -> str:
        word = self.peek()
        if not word or (expected and word not in expected):
            raise NotUnderstood(
                f"{word or 'the end'!r} where {' or '.join(expected) or 'more'} is due: {self.expression}"
            )
        self.at += 1
        return word

    def kind(self) -> str:
        return self.tokens[self.at][0] if self.at < len(self.tokens) else ""

    # -- grammar

    def whole(self) -> Reading:
        result = self.binary()
        if self.at != len(self.tokens):
            raise NotUnderstood(f"{self.peek()!r} is left over: {self.expression}")
        return Reading(metrics=frozenset(self.metrics), result=result, problems=tuple(self.problems))

    def binary(self) -> frozenset[str] | None:
        """Operands and operators from left to right: their order of binding changes no label that is given."""
        left = self.operand()
        while self.peek() in OPERATORS:
            operator = self.take()
            if self.peek() == "bool":
                self.take()
            matched: frozenset[str] | None = None
            if self.peek() in ("on", "ignoring"):
                word = self.take()
                matched = self.names() if word == "on" else None
                if word == "ignoring":
                    self.names()
            keeps_left = self.peek() == "group_left"
            if keeps_left:
                self.take()
                if self.peek() == "(":
                    self.names()
            right = self.operand()
            left = self.combined(operator, left, right, matched, keeps_left)
        return left

    def combined(
        self,
        operator: str,
        left: frozenset[str] | None,
        right: frozenset[str] | None,
        matched: frozenset[str] | None,
        keeps_left: bool,
    ) -> frozenset[str] | None:
        for side in (left, right):
            if matched and side is not None:
                self.expects(matched, side, f"on({', '.join(sorted(matched))})")
        if left is None or right is None:
            return right if left is None else left
        if operator == "or":
            return left & right
        if matched is None and left != right and operator not in ("and", "unless"):
            self.problems.append(f"{sorted(left)} {operator} {sorted(right)} match nothing: {self.expression}")
        return left if matched is None or keeps_left or operator in ("and", "unless") else matched

    def operand(self) -> frozenset[str] | None:
        if self.peek() == "-":
            self.take()
        if self.kind() == "number":
            self.take()
            return None
        if self.peek() == "(":
            self.take("(")
            result = self.binary()
            self.take(")")
            return result
        if self.kind() != "name":
            raise NotUnderstood(f"{self.peek()!r} where a value is due: {self.expression}")
        name = self.take()
        if name in AGGREGATIONS and self.peek() in ("(", "by", "without"):
            return self.aggregation(keeps=name in ("topk", "bottomk"))
        if self.peek() == "(":
            return self.function(name)
        return self.selector(name)

    def aggregation(self, *, keeps: bool) -> frozenset[str]:
        by = self.by()
        found = self.arguments()
        by = by if by is not None else self.by()
        vector = found[-1] or frozenset()
        if by is None or keeps:
            return vector if keeps else frozenset()
        kept, word = by
        self.expects(kept, vector, f"{word} ({', '.join(sorted(kept))})")
        return kept if word == "by" else vector - kept

    def by(self) -> tuple[frozenset[str], str] | None:
        if self.peek() not in ("by", "without"):
            return None
        word = self.take()
        return self.names(), word

    def function(self, name: str) -> frozenset[str] | None:
        if name not in FUNCTIONS:
            raise NotUnderstood(f"function {name} is not known: {self.expression}")
        found = self.arguments() if self.tokens[self.at + 1][1] != ")" else self.nothing()
        vectors = [each for each in found if each is not None]
        if name == "absent" or not vectors:
            return frozenset() if vectors else None
        if name == "histogram_quantile":
            self.expects(frozenset({"le"}), vectors[0], name)
            return vectors[0] - {"le"}
        return vectors[0]

    def nothing(self) -> list[frozenset[str] | None]:
        self.take("(")
        self.take(")")
        return []

    def arguments(self) -> list[frozenset[str] | None]:
        self.take("(")
        found = [self.binary()]
        while self.peek() == ",":
            self.take()
            found.append(self.binary())
        self.take(")")
        return found

    def selector(self, name: str) -> frozenset[str]:
        try:
            labels = self.labels_of(name) | EVERYWHERE
        except KeyError:
            self.problems.append(f"there is no metric {name}: {self.expression}")
            labels = EVERYWHERE
        self.metrics.add(name)
        if self.peek() == "{":
            self.take()
            while self.peek() != "}":
                self.expects(frozenset({self.take()}), labels, name)
                self.take("=", "!=", "=~", "!~")
                if self.kind() != "text":
                    raise NotUnderstood(f"{self.peek()!r} where a text is due: {self.expression}")
                self.take()
                if self.peek() == ",":
                    self.take()
            self.take("}")
        if self.kind() == "range":
            self.take()
        if self.peek() == "offset":
            self.take()
            self.take()
        return labels

    def names(self) -> frozenset[str]:
        self.take("(")
        found = set()
        while self.peek() != ")":
            found.add(self.take())
            if self.peek() == ",":
                self.take()
        self.take(")")
        return frozenset(found)

    def expects(self, wanted: frozenset[str], there: frozenset[str], where: str) -> None:
        missing = sorted(wanted - there)
        if missing:
            self.problems.append(f"{where} has no label {', '.join(missing)}: {self.expression}")


def read(expression: str, labels: Mapping[str, frozenset[str]]) -> Reading:
    """What an expression reads, given the labels of every metric that there is; raises NotUnderstood."""
    return _Parser(expression, labels.__getitem__).whole()
