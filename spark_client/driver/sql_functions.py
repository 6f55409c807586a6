"""SQL functions of a sidecar's dimensions: names, columns, and registration in a Spark session.

`LookupFunctions` makes the functions. Nothing is registered if one of them is refused.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from lookup_core.errors import (
    BackendError,
    InvalidRequest,
    SidecarUnreachable,
    of_dimension,
)
from spark_client.driver.lookup_functions import LookupFunctions
from spark_client.driver.options import distinct_names, refused, schema_text_or_type, some_names
from spark_client.driver.schemas import as_struct, dimension_columns
from spark_client.transport.dimension_names import dimension_names

_log = logging.getLogger(__name__)

# Of one function: names of columns, a schema as DDL or StructType, or None for all columns.
Fields = Sequence[str] | StructType | None
Dimensions = Sequence[str] | Mapping[str, Fields]

_THREADS = 16  # which read schemas, because each dimension may wait for its own database


@dataclass(frozen=True, slots=True)
class SqlFunctions:
    """The functions to register: those of all dimensions, or of chosen ones."""

    functions: LookupFunctions
    prefix: str
    dimensions: Mapping[str, Fields] | None

    def register(self, session: SparkSession) -> dict[str, str]:
        """Register the functions; returns {name in SQL: dimension}.

        Raises ValueError for names that clash, InvalidRequest, BackendError, SidecarUnreachable.
        """
        schemas = self._schemas()
        names = {self.prefix + dimension: dimension for dimension in schemas}
        _check_names(names, session)
        functions = [
            (name, self.functions.function(dimension, schemas[dimension]))
            for name, dimension in names.items()
        ]
        for name, function in functions:
            session.udf.register(name, function)
        return names

    def _schemas(self) -> dict[str, StructType]:
        try:
            if self.dimensions is None:
                return self._usable(dimension_names(self.functions.address))
            return self._chosen(self.dimensions)
        except SidecarUnreachable as error:
            remedy = "where the driver has no sidecar, give dimensions={name: schema}"
            raise SidecarUnreachable(error.endpoint, f"{error.reason}; {remedy}") from error

    def _usable(self, names: Sequence[str]) -> dict[str, StructType]:
        """{dimension: columns} of those that can be functions; warns of the others."""
        schemas, refusals = {}, []
        for name, reading in self._read(dict.fromkeys(names)).items():
            try:
                schemas[name] = reading.result()
            except (InvalidRequest, BackendError) as error:
                refusals.append(error)
                _log.warning("dimension %s has no SQL function: %s", name, error)
        if refusals and not schemas:
            raise refusals[0]
        return schemas

    def _chosen(self, given: Mapping[str, Fields]) -> dict[str, StructType]:
        schemas: dict[str, StructType] = {}
        unread: dict[str, Sequence[str] | None] = {}
        for name, each in given.items():
            if isinstance(each, (str, StructType)):
                schemas[name] = as_struct(f"dimensions[{name!r}]", each)
            else:
                unread[name] = each
        for name, reading in self._read(unread).items():
            schemas[name] = reading.result()
        return schemas

    def _read(self, wanted: Mapping[str, Sequence[str] | None]) -> "dict[str, Future[StructType]]":
        """Read columns from the sidecar; the futures are done."""
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="sidelook-schema") as threads:
            return {name: threads.submit(self._columns, name, wanted[name]) for name in wanted}

    def _columns(self, dimension: str, columns: Sequence[str] | None) -> StructType:
        described = self.functions.described(dimension, columns)
        try:
            return dimension_columns(described)
        except InvalidRequest as error:
            remedy = f"in register, list the others: dimensions={{{dimension!r}: […]}}"
            detail = of_dimension(dimension, f"{error.detail}; {remedy}")
            raise InvalidRequest(error.code, detail) from error


def parsed_dimensions(value: Any) -> dict[str, Fields]:  # noqa: ANN401 -- also wrong ones
    """The columns of each dimension; ValueError for another value."""
    option = "dimensions"
    named = value if isinstance(value, Mapping) else dict.fromkeys(distinct_names(option, value))
    if not named or not all(isinstance(name, str) and name for name in named):
        raise refused(option, "a list of one or more names, or {name: columns}", value)
    return {name: _fields(f"{option}[{name!r}]", each) for name, each in named.items()}


def _fields(option: str, value: Fields) -> Fields:
    if value is None:
        return None
    if isinstance(value, str) and value.isidentifier():
        raise ValueError(f"{option} is a list of names, or DDL with types; write [{value!r}]")
    if isinstance(value, (str, StructType)) and value != StructType():
        return schema_text_or_type(option, value)
    return some_names(option, value)


def _check_names(names: Iterable[str], session: SparkSession) -> None:
    """Raise ValueError for names that Spark would not distinguish, or has itself."""
    known: dict[str, str] = {}
    for name in names:
        other = known.setdefault(name.lower(), name)
        if other != name:
            raise ValueError(
                f"Spark does not distinguish the functions {other} and {name}; register one of"
                " them in a call of its own, with another prefix"
            )
    # Some versions of Spark replace their own function in the session, others never call ours.
    own = {str(row[0]).lower() for row in session.sql("SHOW SYSTEM FUNCTIONS").collect()}
    clashing = sorted(known[name] for name in known.keys() & own)
    if clashing:
        detail = f"Spark has functions {', '.join(clashing)}; choose another prefix"
        raise ValueError(detail)
