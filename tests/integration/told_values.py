"""Values of all types that a changelog tells as a query brings them, the far and odd ones, too.

A table of them has one column for each type, and one row for each value; all else in it is NULL.
"""

from dataclasses import dataclass

from tools.processes.postgres_server import Database

NO_NUMBER = "numeric 'NaN'"
LONG_TEXT = "repeat('x', 20000)"  # stored outside its row
_DAYS = ("1970-01-01", "1969-12-31", "0001-01-01", "1582-10-04", "1582-10-10", "9999-12-31")
_NO_DAYS = ("infinity", "-infinity", "10000-01-01", "0044-03-15 BC", "4713-01-01 BC")
_MOMENTS = (
    "1970-01-01",
    "0001-01-01",
    "1582-10-10 12:00:00.000001",
    "1890-01-01 00:00:00.1",
    "2013-03-31 02:30:00",
    "9999-12-31 23:59:59.999999",
)
_NO_MOMENTS = ("infinity", "-infinity", "10000-01-01", "294276-12-31 23:59:59.999999")
# The literals of each type.
_TOLD: dict[str, tuple[str, ...]] = {
    "int2": ("-32768", "32767", "0"),
    "int4": ("-2147483648", "2147483647"),
    "int8": ("-9223372036854775808", "9223372036854775807", "9007199254740993"),
    "bool": ("true", "false"),
    "float4": ("'0.1'", "'-0'", "'NaN'", "'-Infinity'", "3.4028235e38", "1e-45", "16777216"),
    "float8": ("0.1::float8 + 0.2", "'-0'", "'NaN'", "'Infinity'", "1.7976931348623157e308"),
    "numeric(10, 2)": ("1.5", "-0.01", "0", "99999999.99", NO_NUMBER, "1234"),
    "numeric(37, 1)": (f"-{'9' * 36}.9", "1"),
    "text": (
        "''",
        r"E'a\n\t\"\\'",
        "'é\U0001f600'",
        "'null'",
        "'1.50'",
        r"E'\u2028\x7f\x01'",
        LONG_TEXT,
    ),
    "varchar(5)": ("'abc'", "'ab  '"),
    "mood": ("'happy'", "'a,b \"c'"),
    "uuid": ("'00112233-4455-6677-8899-AABBCCDDEEFF'",),
    "date": tuple(f"'{day}'" for day in _DAYS),
    "timestamp": tuple(f"'{moment}'" for moment in _MOMENTS),
    "timestamptz": tuple(f"timestamp '{moment}' AT TIME ZONE 'UTC'" for moment in _MOMENTS),
}
# Of types that are told with REPLICA IDENTITY FULL only.
_TOLD_IN_FULL = {
    "numeric(38, 1)": (f"{'9' * 37}.9", "-0.1"),
    "bytea": (r"'\x00ff'", "''", r"'\xfbefbe'", "'abcd'", "decode(repeat('0f', 20000), 'hex')"),
}
# Of the former types, and left open: what no Arrow type holds, and what may mean something else.
_HOLES: dict[str, tuple[str, ...]] = {
    "float4": ("'7.038531e-26'",),  # as a double, halfway between two
    "text": ("'__debezium_unavailable_value'",),
    "date": tuple(f"'{day}'" for day in _NO_DAYS),
    "timestamp": tuple(f"'{moment}'" for moment in _NO_MOMENTS),
    "timestamptz": tuple(f"timestamp '{moment}' AT TIME ZONE 'UTC'" for moment in _NO_MOMENTS),
}


@dataclass(frozen=True, slots=True)
class ToldValues:
    """A table; its rows have the keys from 1 on, in this order."""

    name: str
    has_full_identity: bool

    @property
    def rows(self) -> list[tuple[str, str]]:
        """The type and the literal of each."""
        tables = (self._told, _HOLES)
        return [(kind, each) for table in tables for kind in table for each in table[kind]]

    def keys_of(self, *literals: str) -> set[int]:
        """The keys of rows with one of these values."""
        return {key for key, (_, each) in enumerate(self.rows, 1) if each in literals}

    @property
    def holes(self) -> set[int]:
        """The keys of rows that are not told, whatever is done with them."""
        return self.keys_of(*(each for literals in _HOLES.values() for each in literals))

    def create(self, database: Database) -> None:
        """Make the empty table."""
        types = [*self._told, "text NOT NULL DEFAULT 'x'", "numeric(8, 2) NOT NULL DEFAULT 2.5"]
        columns = ", ".join(f"c{at} {kind}" for at, kind in enumerate(types))
        identity = "FULL" if self.has_full_identity else "DEFAULT"
        database.execute(
            "CREATE TYPE mood AS ENUM ('happy', 'a,b \"c')",
            f"CREATE TABLE {self.name} (id int4 PRIMARY KEY, touched int4, {columns})",
            f"ALTER TABLE {self.name} REPLICA IDENTITY {identity}",
            *(
                f"ALTER TABLE {self.name} ALTER c{at} SET STORAGE EXTERNAL"
                for at, kind in enumerate(types)
                if kind in {"text", "bytea"}
            ),
        )

    def inserts(self) -> list[str]:
        """The statements that put the rows into it."""
        column = {kind: f"c{at}" for at, kind in enumerate(self._told)}
        return [
            f"INSERT INTO {self.name} (id, {column[kind]}) VALUES ({key}, {each})"
            for key, (kind, each) in enumerate(self.rows, 1)
        ]

    @property
    def _told(self) -> dict[str, tuple[str, ...]]:
        return {**_TOLD, **(_TOLD_IN_FULL if self.has_full_identity else {})}
