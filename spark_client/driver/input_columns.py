"""Input columns of lookups: keys by name, by the path of a struct's field, or as an expression.

What is no column of the records becomes a hidden column behind them.
"""

import dataclasses
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, TypeAlias

import pyspark
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, types
from pyspark.sql.types import DataType, StructField, StructType

from lookup_core.errors import ErrorCode, InvalidRequest, nearest_name, similar_name
from spark_client.lookup_settings import JoinKeys

KeySource: TypeAlias = str | Column  # a column's name, the path of a field, or an expression
# A Column cannot be the key of a dict, because Spark gives it no hash: pairs say the same.
On: TypeAlias = KeySource | Sequence[KeySource | tuple[KeySource, str]] | Mapping[str, str]

_TEXT = re.compile(r"Column<'(.*)'>", re.DOTALL)
_STAR = re.compile(r"(.*\.)?\*|unresolvedstar\(.*\)", re.DOTALL)  # the latter on PySpark 3.5
_GENERATOR = re.compile(r"(explode|posexplode|inline|stack|json_tuple)(_outer)?\(", re.IGNORECASE)

# By name, because not every version has every type.
_KINDS_ONLY_IN_JVM = tuple(
    getattr(types, name)
    for name in ("YearMonthIntervalType", "CalendarIntervalType", "CharType", "VarcharType")
    if hasattr(types, name)
)


@dataclass(frozen=True, slots=True)
class ParsedOn:
    """The keys of a lookup by name, and the expressions among them."""

    keys: JoinKeys
    # {position in the key: expression}; `keys` has their texts, by which they are compared
    expressions: Mapping[int, Column] = dataclasses.field(default_factory=dict, compare=False)


def parsed_on(on: On | None) -> ParsedOn:
    """Parse the forms of `on=`; raises ValueError for others."""
    if on is None:
        raise ValueError("on must name at least one column, not None")
    pairs, are_exact = _pairs(on)
    if not pairs:
        raise ValueError("on must name at least one column")
    for source, name in pairs:
        is_source = source != "" if isinstance(source, str) else _is_column(source)
        if not is_source or not isinstance(name, str) or not name:
            raise ValueError(
                "on is a column's name, a Column, a list of them, a dict of names, or a list of"
                f" pairs (name or Column, name in the dimension's key), not {on!r}"
            )
    expressions = {
        at: source for at, (source, _) in enumerate(pairs) if not isinstance(source, str)
    }
    texts = tuple(_text(source) for source, _ in pairs)
    for position in expressions:
        if _GENERATOR.match(texts[position]):
            raise ValueError(
                f"on has {texts[position]}, which makes several records of one; select it before"
                " the lookup"
            )
        if _STAR.fullmatch(texts[position]):
            raise ValueError(f"on has {texts[position]}, which is several columns; name each")
    if not are_exact and len(set(texts)) < len(texts):
        raise ValueError(f"on names a column twice: {', '.join(texts)}")
    return ParsedOn(JoinKeys(texts, tuple(name for _, name in pairs), are_exact), expressions)


def _pairs(on: Any) -> tuple[list[tuple[Any, Any]], bool]:  # noqa: ANN401 -- also wrong ones
    """Pairs of a source and the name of its key column, and whether the user gave the names."""
    if isinstance(on, Mapping):
        return list(on.items()), True
    if isinstance(on, str) or not isinstance(on, Sequence):
        return [(on, _text(on))], False
    if on and all(isinstance(each, tuple) and len(each) == 2 for each in on):
        return list(on), True
    return [(each, _text(each)) for each in on], False


def _is_column(value: object) -> bool:
    # On PySpark 3.5, Spark Connect has a class of its own, which needs grpcio to be imported.
    kind = type(value)
    is_connect = kind.__name__ == "Column" and kind.__module__.startswith("pyspark.sql.connect")
    return isinstance(value, Column) or is_connect


def _text(source: object) -> str:
    """A name as it is, an expression for people."""
    text = str(source)
    found = _TEXT.fullmatch(text)
    return text if isinstance(source, str) or found is None else found[1]


@dataclass(frozen=True, slots=True)
class InputColumn:
    """A column that goes into a pass, also a hidden one."""

    position: int
    name: str  # for an expression, Spark's own
    kind: DataType
    column: Column


class InputColumns:
    """The columns of the records, then the hidden ones that were requested."""

    def __init__(self, records: DataFrame) -> None:
        """Raises InvalidRequest if Spark cannot distinguish two of the records' names."""
        self.names = column_names(records)
        self.records = records
        self._fields = records.schema.fields
        self._hidden: dict[str, InputColumn] = {}  # {path, or number of an expression: column}

    def named(self, name: str, *added: str) -> InputColumn:
        """The column of this name, else the field of a struct with this path.

        Raises InvalidRequest that lists the columns, and the added ones.
        """
        path = self.names.path(self._fields, name)
        if path is None:
            raise self.names.unknown_field(self._fields, name) or self.names.unknown(name, *added)
        column = self.records[".".join(quoted(field.name) for field in path)]
        if len(path) == 1:
            position = self._fields.index(path[0])
            return InputColumn(position, name, path[0].dataType, column)
        return self._hidden.setdefault(
            name, InputColumn(self._next, name, path[-1].dataType, column)
        )

    def computed(self, expressions: Sequence[Column]) -> list[InputColumn]:
        """The values of expressions over the records, each evaluated once for a record.

        Raises InvalidRequest for an expression that Spark cannot evaluate.
        """
        if not expressions:
            return []
        texts = ", ".join(map(_text, expressions))
        try:
            # With the records' columns, because an aggregate is no value of a record.
            fields = self.records.select("*", *expressions).schema.fields[len(self._fields) :]
        except AnalysisException as error:
            detail = (
                f"on= has expressions that do not fit the records ({texts});"
                f" {str(error).splitlines()[0]} Expressions use columns of one record only: for"
                " one of another lookup, chain a second lookup_join; compute aggregates before"
            )
            raise InvalidRequest(ErrorCode.BAD_REQUEST, detail) from error
        if len(fields) != len(expressions):
            detail = f"on= has an expression of several columns: {texts}; name one of them"
            raise InvalidRequest(ErrorCode.BAD_REQUEST, detail)
        return [
            self._hidden.setdefault(
                f"{number}", InputColumn(self._next, field.name, field.dataType, column)
            )
            for number, (field, column) in enumerate(zip(fields, expressions, strict=True))
        ]

    @property
    def width(self) -> int | None:
        """The number of the records' columns; None if there is no hidden one."""
        return len(self._fields) if self._hidden else None

    def projected(self) -> DataFrame:
        """The records with the hidden columns."""
        if not self._hidden:
            return self.records
        prefix = free_prefix("_lookup_key_", self.records.columns)
        hidden = [
            each.column.alias(f"{prefix}{number}")
            for number, each in enumerate(self._hidden.values())
        ]
        return self.records.select("*", *hidden)

    @property
    def _next(self) -> int:
        return len(self._fields) + len(self._hidden)


class ColumnNames:
    """The columns of the records, in order."""

    def __init__(self, names: Sequence[str], *, is_case_sensitive: bool) -> None:
        """Raises InvalidRequest if Spark cannot distinguish two of the names."""
        self._names = tuple(names)
        self._is_case_sensitive = is_case_sensitive
        self._check_distinct(self._names, (), "rename one of them before the lookup")

    def unknown(self, name: str, *added: str) -> InvalidRequest:
        """The error for a name that no column has; it lists them and the added ones."""
        names = [*self._names, *added]
        close = similar_name(name, names)
        hint = f"did you mean {close}? " if close else ""
        detail = f"the records have no column {name!r}; {hint}they have {', '.join(names)}"
        return InvalidRequest(ErrorCode.UNKNOWN_COLUMN, detail)

    def unknown_field(self, fields: Sequence[StructField], name: str) -> InvalidRequest | None:
        """The error for a path whose last struct lacks the field; None if it begins with none."""
        for field in fields:
            kind, rest = field.dataType, name[len(field.name) :]
            is_start = rest.startswith(".") and self.are_same(field.name + rest, name)
            if is_start and isinstance(kind, StructType):
                hint = nearest_name(rest[1:], kind.names)
                detail = f"struct {field.name!r} has no field {rest[1:]!r}{hint}"
                deeper = self.unknown_field(kind.fields, rest[1:])
                return deeper or InvalidRequest(ErrorCode.UNKNOWN_COLUMN, detail)
        return None

    def are_same(self, name: str, other: str) -> bool:
        """Whether Spark sees one name in these."""
        return self._folded(name) == self._folded(other)

    def path(self, fields: Sequence[StructField], name: str) -> list[StructField] | None:
        """The field of this name, else those that lead to it through structs; None if none does.

        Names may contain dots.
        """
        for field in fields:
            if self.are_same(field.name, name):
                return [field]
        for field in fields:
            kind, rest = field.dataType, name[len(field.name) :]
            if not isinstance(kind, StructType) or not rest.startswith("."):
                continue
            if self.are_same(field.name, name[: len(field.name)]):
                path = self.path(kind.fields, rest[1:])
                if path is not None:
                    return [field, *path]
        return None

    def check_with(self, added: Sequence[str], dimensions: Sequence[str]) -> None:
        """Raise InvalidRequest if an added name exists already, or is added twice.

        `dimensions` has the dimension whose lookup adds it, for each of the added names.
        """
        origins = [
            *("of the records" for _ in self._names),
            *(f'of dimension "{dimension}"' for dimension in dimensions),
        ]
        remedy = "set another prefix= or status_column=, or choose one of them with columns="
        self._check_distinct((*self._names, *added), origins, remedy)

    def _check_distinct(self, names: Sequence[str], origins: Sequence[str], remedy: str) -> None:
        counts = Counter(self._folded(name) for name in names)
        clashing = sorted(
            f"{name} {origin}".rstrip()
            for name, origin in zip_longest(names, origins, fillvalue="")
            if counts[self._folded(name)] > 1
        )
        if clashing:
            detail = f"columns of the same name: {', '.join(clashing)}; {remedy}"
            raise InvalidRequest(ErrorCode.BAD_REQUEST, detail)

    def _folded(self, name: str) -> str:
        return name if self._is_case_sensitive else name.lower()


def column_names(records: DataFrame) -> ColumnNames:
    """The columns of a DataFrame, with the case sensitivity of its session."""
    is_case_sensitive = records.sparkSession.conf.get("spark.sql.caseSensitive") == "true"
    return ColumnNames(records.columns, is_case_sensitive=is_case_sensitive)


def quoted(name: str) -> str:
    """The name as one part of a path: unquoted, Spark reads dots and backticks as such."""
    return f"`{name.replace('`', '``')}`"


def free_prefix(wanted: str, names: Sequence[str]) -> str:
    """The wanted name, behind underscores until none of the names begins with it."""
    while any(name.lower().startswith(wanted) for name in names):
        wanted = f"_{wanted}"
    return wanted


def only_in_jvm(records: DataFrame) -> list[StructField]:
    """The columns that `mapInArrow` cannot return, such as intervals of months.

    Also structs with several fields of one name, and `array()` and `map()`, whose elements are void
    and never NULL: Spark does not put them into Arrow.
    """
    return [field for field in records.schema.fields if _has_kind_only_in_jvm(field.dataType)]


def _has_kind_only_in_jvm(kind: DataType) -> bool:
    match kind:
        case types.StructType(fields=fields, names=names):
            if len(set(names)) < len(names):
                return True
            inner = [field.dataType for field in fields]
        case (
            types.ArrayType(elementType=types.NullType(), containsNull=False)
            | types.MapType(keyType=types.NullType())
            | types.MapType(valueType=types.NullType(), valueContainsNull=False)
        ):
            return True
        case types.ArrayType(elementType=element):
            inner = [element]
        case types.MapType(keyType=key, valueType=value):
            inner = [key, value]
        case types.UserDefinedType():
            inner = [kind.sqlType()]
        case _:
            return isinstance(kind, _KINDS_ONLY_IN_JVM)
    return any(map(_has_kind_only_in_jvm, inner))


def addressable(records: DataFrame) -> DataFrame:
    """The records as `mapInArrow` takes them: it reads dots and backticks in names as a path.

    Raises InvalidRequest for a column that it cannot return.
    """
    for field in only_in_jvm(records):
        detail = (
            f"column {field.name!r} is {field.dataType.simpleString()}, which Python functions of"
            f" PySpark {pyspark.__version__} cannot return; cast it, drop it before the lookup, or"
            " use PySpark 4.1 or newer, where it stays in the JVM"
        )
        raise InvalidRequest(ErrorCode.TYPE, detail)
    if not any(mark in name for name in records.columns for mark in ".`"):
        return records
    return records.toDF(*(f"c{position}" for position in range(len(records.columns))))
