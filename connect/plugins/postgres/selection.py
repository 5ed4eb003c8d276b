"""Which schemas, tables and columns are captured

Debezium's include and exclude lists: regular expressions, separated by commas (a comma inside one is written `\\,`),
matched against the whole name without regard to case. An include list wins over an exclude list of the same kind.
"""

import re
from dataclasses import dataclass

SYSTEM_SCHEMAS = ("pg_catalog", "information_schema", "pg_toast")
_COMMA = re.compile(r"(?<!\\),")


def split_patterns(text: str) -> list[str]:
    """Return the patterns of a comma-separated list."""
    return [part.replace("\\,", ",").strip() for part in _COMMA.split(text) if part.strip()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """An include and an exclude list over one kind of name."""

    include: tuple[re.Pattern[str], ...] = ()
    exclude: tuple[re.Pattern[str], ...] = ()

    @classmethod
    def of(cls, include: str, exclude: str = "") -> "Filter":
        """Compile two lists."""
        return cls(include=_compiled(include), exclude=_compiled(exclude))

    def accepts(self, name: str) -> bool:
        """Tell whether the lists let `name` through."""
        if self.include:
            return any(pattern.fullmatch(name) for pattern in self.include)
        return not any(pattern.fullmatch(name) for pattern in self.exclude)


def _compiled(text: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(pattern, re.IGNORECASE) for pattern in split_patterns(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What a connector captures."""

    schemas: Filter = Filter()
    tables: Filter = Filter()
    columns: Filter = Filter()
    keys: tuple[tuple[re.Pattern[str], tuple[str, ...]], ...] = ()

    def table(self, schema: str, table: str) -> bool:
        """Tell whether a table is captured."""
        if schema in SYSTEM_SCHEMAS:
            return False
        return self.schemas.accepts(schema) and self.tables.accepts(f"{schema}.{table}")

    def column(self, schema: str, table: str, column: str) -> bool:
        """Tell whether a column is part of values."""
        return self.columns.accepts(f"{schema}.{table}.{column}")

    def key(self, schema: str, table: str) -> tuple[str, ...] | None:
        """Return the key columns the user chose for a table."""
        for pattern, columns in self.keys:
            if pattern.fullmatch(f"{schema}.{table}"):
                return columns
        return None


def key_columns(text: str) -> tuple[tuple[re.Pattern[str], tuple[str, ...]], ...]:
    """Read `schema.table:column,column;…`."""
    chosen = []
    for part in filter(None, (each.strip() for each in text.split(";"))):
        pattern, colon, columns = part.rpartition(":")
        names = tuple(name.strip() for name in columns.split(",") if name.strip())
        if not colon or not pattern.strip() or not names:
            raise ValueError(f"message.key.columns: {part!r} is not schema.table:column,column")
        chosen.append((re.compile(pattern.strip(), re.IGNORECASE), names))
    return tuple(chosen)
