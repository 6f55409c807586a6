"""Tables of values of all types in Debezium events, extreme ones included.

A table has a column for each type, and a row for each value; all other cells are NULL.
"""

from dataclasses import dataclass

from tools.processes.postgres_server import Database

LONG_TEXT = "repeat('x', 20000)"  # stored outside its row
_DAYS = ("1970-01-01", "1969-12-31", "0001-01-01", "1582-10-04", "1582-10-10", "9999-12-31")
# Null in columns.
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
# {type: literals} that events contain exactly.
_IN_EVENTS: dict[str, tuple[str, ...]] = {
    "int2": ("-32768", "32767", "0"),
    "int4": ("-2147483648", "2147483647"),
    "int8": ("-9223372036854775808", "9223372036854775807", "9007199254740993"),
    "bool": ("true", "false"),
    "float4": ("'0.1'", "'-0'", "'NaN'", "'-Infinity'", "3.4028235e38", "1e-45", "16777216"),
    "float8": ("0.1::float8 + 0.2", "'-0'", "'NaN'", "'Infinity'", "1.7976931348623157e308"),
    "numeric(10, 2)": ("1.5", "-0.01", "0", "99999999.99", "'NaN'", "1234"),
    "numeric(37, 1)": (f"-{'9' * 36}.9", "1"),
    "numeric(12, 9)": ("0", "0.000000001"),
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
    "date": tuple(f"'{day}'" for day in (*_DAYS, *_NO_DAYS)),
    "timestamp": tuple(f"'{moment}'" for moment in (*_MOMENTS, *_NO_MOMENTS)),
    "timestamptz": tuple(
        f"timestamp '{moment}' AT TIME ZONE 'UTC'" for moment in (*_MOMENTS, *_NO_MOMENTS)
    ),
}
# The same, with REPLICA IDENTITY FULL only.
_IN_FULL_EVENTS = {
    "numeric(38, 1)": (f"{'9' * 37}.9", "-0.1"),
    "bytea": (r"'\x00ff'", "''", r"'\xfbefbe'", "'abcd'", "decode(repeat('0f', 20000), 'hex')"),
}
# Values of these types without an exact or unambiguous form in events.
_HOLES: dict[str, tuple[str, ...]] = {
    "float4": ("'7.038531e-26'",),  # as a double, halfway between two values
    "text": ("'__debezium_unavailable_value'",),
}


@dataclass(frozen=True, slots=True)
class TypedValues:
    """A table of values, with keys from 1."""

    name: str
    has_full_identity: bool

    @property
    def rows(self) -> list[tuple[str, str]]:
        """Type and literal of each row, in the order of the keys."""
        tables = (self._values, _HOLES)
        return [(kind, each) for table in tables for kind in table for each in table[kind]]

    def keys_of(self, *literals: str) -> set[int]:
        """The keys of rows with one of these literals."""
        return {key for key, (_, each) in enumerate(self.rows, 1) if each in literals}

    @property
    def holes(self) -> set[int]:
        """The keys of rows that events never contain whole."""
        return self.keys_of(*(each for literals in _HOLES.values() for each in literals))

    @property
    def whole_milliseconds(self) -> set[int]:
        """The keys of moments without microseconds: as numbers, their unit is not certain."""
        rows = enumerate(self.rows, 1)
        return {
            key
            for key, (kind, each) in rows
            if kind == "timestamp" and "00001'" not in each and "99999'" not in each
        }

    def create(self, database: Database) -> None:
        """Create the empty table."""
        types = [*self._values, "text NOT NULL DEFAULT 'x'", "numeric(8, 2) NOT NULL DEFAULT 2.5"]
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
        """The statements that insert the rows."""
        column = {kind: f"c{at}" for at, kind in enumerate(self._values)}
        return [
            f"INSERT INTO {self.name} (id, {column[kind]}) VALUES ({key}, {each})"
            for key, (kind, each) in enumerate(self.rows, 1)
        ]

    @property
    def _values(self) -> dict[str, tuple[str, ...]]:
        return {**_IN_EVENTS, **(_IN_FULL_EVENTS if self.has_full_identity else {})}
