"""Lookup functions over pandas Series, for PySpark before 4.1, which has no Arrow functions.

`PandasLookup` looks up in the worker.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 -- its usual name
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.types import StructType

from spark_client.worker.lookup_task import LookupFunctionTask
from spark_client.worker.pandas_lookup import PandasLookup

LookupFunction: TypeAlias = Callable[..., Column]
Series: TypeAlias = Any  # pandas.Series; pandas has no types here
Frame: TypeAlias = Any  # pandas.DataFrame

_EXACT = 2**53  # doubles represent smaller whole numbers exactly
_REMEDY = "use lookup_join, or PySpark 4.1 or newer"
# What a registered function needs; Spark reads these from its own functions.
_REGISTERED = ("func", "returnType", "evalType", "deterministic")


def pandas_function(task: LookupFunctionTask, columns: StructType, name: str) -> LookupFunction:
    """A function of the key's columns; the struct is NULL where there is no row.

    As a function in SQL, for which Spark takes only its attributes, it gives a struct of NULLs
    there: a function over Series cannot return a NULL struct.
    """
    mark = "_has_row"
    while mark in columns.names:
        mark = f"_{mark}"
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
