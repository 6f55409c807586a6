"""Lookup functions: of the key's columns, over Arrow arrays, or over Series before PySpark 4.1.

The tasks that they call run in the worker.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 -- its usual name
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.types import DataType, StructType

from spark_client.driver.input_columns import free_prefix
from spark_client.driver.schemas import (
    arrow_columns,
    as_struct,
    chosen_columns,
    described_columns,
    dimension_columns,
)
from spark_client.lookup_settings import LookupSettings, PassSettings
from spark_client.transport.connections import ANY_KEY, SidecarAddress
from spark_client.worker.lookup_task import LookupFunctionTask, LookupPassTask
from spark_client.worker.pandas_lookup import PandasLookup

LookupFunction: TypeAlias = Callable[..., Column]

HAS_ARROW_FUNCTIONS = hasattr(F, "arrow_udf")  # PySpark 4.1 and newer
# What a registered function needs; Spark reads these from its own functions.
_REGISTERED = ("func", "returnType", "evalType", "deterministic")


@dataclass(frozen=True, slots=True)
class LookupFunctions:
    """Makes lookup functions that share their options."""

    address: SidecarAddress
    lookup: LookupSettings
    settings: PassSettings
    is_deterministic: bool

    def __post_init__(self) -> None:
        self.lookup.check_timeout(self.settings.timeout_s)

    def declared(
        self, dimension: str, names: Sequence[str] | None, schema: str | StructType | None
    ) -> LookupFunction:
        """The function that returns these columns, by name or with their types.

        Raises ValueError; without a schema as `described` does.
        """
        if names == () or schema == StructType():
            raise ValueError("a struct needs a field: columns and schema have at least one column")
        if schema is None:
            return self.function(dimension, dimension_columns(self.described(dimension, names)))
        return self.function(dimension, chosen_columns(as_struct("schema", schema), names))

    def described(self, dimension: str, names: Sequence[str] | None) -> pa.Schema:
        """Read a dimension's columns from a sidecar; raises as `described_columns` does."""
        needs = self.lookup.needs()
        return described_columns(self.address, dimension, columns=names, key=ANY_KEY, needs=needs)

    def function(self, dimension: str, columns: StructType) -> LookupFunction:
        """A function of the key's columns, in the order of the dimension's key."""
        offered = arrow_columns(columns)
        task = LookupFunctionTask(self.address, dimension, offered, self.lookup, self.settings)
        name = f"lookup_{dimension}"  # shown in query plans
        make = arrow_function if HAS_ARROW_FUNCTIONS else pandas_function
        function = make(task, columns, name)
        if not self.is_deterministic:
            function = function.asNondeterministic()  # type: ignore[attr-defined]
        return _with_arguments(function, name)


def _with_arguments(function: LookupFunction, name: str) -> LookupFunction:
    @wraps(function)  # keeps what Spark needs to register it
    def checked(*keys: Any) -> Column:  # noqa: ANN401 -- columns or their names
        if not keys:
            raise ValueError(f"{name} has no argument; pass the columns of the dimension's key")
        return function(*keys)

    return checked


def arrow_function(
    task: LookupFunctionTask | LookupPassTask, result: DataType, name: str
) -> LookupFunction:
    """The task as a function of columns; `name` is shown in query plans."""

    def looked_up(arguments: Iterator[pa.Array]) -> Iterator[pa.Array]:
        return task(arguments)

    looked_up.__name__ = name
    # Its kind stands in the type hints; the stubs of PySpark lack it.
    return F.arrow_udf(looked_up, returnType=result)  # type: ignore[attr-defined]


def pandas_function(task: LookupFunctionTask, columns: StructType, name: str) -> LookupFunction:
    """A function of the key's columns; the struct is NULL where there is no row.

    As a function in SQL, for which Spark takes only its attributes, it gives a struct of NULLs
    there: a function over Series cannot return a NULL struct.
    """
    mark = free_prefix("_has_row", columns.names)
    plain = _function(PandasLookup(task, None), columns, name)
    marked = _function(PandasLookup(task, mark), StructType([*columns]).add(mark, "boolean"), name)
    return _null_without_row(plain, marked, columns.names, mark=mark)


def _null_without_row(
    plain: LookupFunction, marked: LookupFunction, names: Sequence[str], *, mark: str
) -> LookupFunction:
    def lookup(*keys: Any) -> Column:  # noqa: ANN401 -- columns or their names
        row = marked(*keys)
        fields = [row.getField(field).alias(field) for field in names]
        return F.when(row.getField(mark), F.struct(*fields))

    def as_nondeterministic() -> LookupFunction:
        once, once_marked = plain.asNondeterministic(), marked.asNondeterministic()  # type: ignore[attr-defined]
        return _null_without_row(once, once_marked, names, mark=mark)

    lookup.__name__ = plain.__name__
    for attribute in _REGISTERED:
        setattr(lookup, attribute, getattr(plain, attribute))
    lookup.asNondeterministic = as_nondeterministic  # type: ignore[attr-defined]
    return lookup


def _function(lookup: "PandasLookup", columns: StructType, name: str) -> LookupFunction:
    import pandas as pd  # noqa: PLC0415 -- not needed to import spark_client

    def function(keys: Any) -> Any:  # noqa: ANN401 -- annotated below
        return lookup(keys)

    # PySpark reads the kind of function from its annotations.
    function.__annotations__ = {"keys": Iterator[pd.Series], "return": Iterator[pd.DataFrame]}
    function.__name__ = name  # shown in query plans
    return pandas_udf(function, returnType=columns)  # type: ignore[call-overload]
