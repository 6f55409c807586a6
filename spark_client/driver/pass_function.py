"""Arrow functions of lookups: only their arguments leave the JVM, the other columns stay there.

Chooses between such a function and `mapInArrow` for a pass; looks up nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- its usual name
from pyspark.sql.types import ArrayType, BooleanType, DataType, StructField, StructType

from spark_client.driver.input_columns import free_prefix, quoted
from spark_client.driver.lookup_functions import HAS_ARROW_FUNCTIONS, arrow_function
from spark_client.lookup_settings import OutputMode, Via
from spark_client.worker.lookup_task import LookupPass, LookupPassTask
from spark_client.worker.output_columns import AddedPart, drops_records

MIN_FUNCTION_COLUMNS = 10  # see docs/decisions/037


def is_function(
    via: Via | None,
    mode: OutputMode | None,
    *,
    columns: int,
    has_functions: bool = HAS_ARROW_FUNCTIONS,
) -> bool:
    """Whether a pass over records of `columns` columns runs as a function."""
    if via in {Via.BATCH, Via.UDF}:
        return via is Via.UDF
    is_possible = has_functions and mode in {None, OutputMode.ORDERED}
    return is_possible and columns >= MIN_FUNCTION_COLUMNS


def by_function(
    records: DataFrame, lookups: LookupPass, added: Sequence[StructField], *, names: Sequence[str]
) -> DataFrame:
    """The named columns of the records, and the added ones; Spark drops what nothing reads.

    The function is evaluated once for each record: it counts as nondeterministic, so that Spark
    neither copies it nor moves filters below it.
    """
    parts = [target.part for target in lookups.targets]
    drops = drops_records(parts)
    if not added and not drops:
        return records.select(*map(quoted, names))
    returned = _returned(parts, added)
    kinds = [each.kind for each in returned] + [BooleanType()] * drops
    result: DataType = kinds[0]
    if kinds[1:]:
        result = StructType([StructField(str(at), kind) for at, kind in enumerate(kinds)])
    name = "_".join(["lookup", *(target.dimension for target in lookups.targets)])
    function = arrow_function(LookupPassTask(lookups.over_inputs()), result, name)
    arguments = [quoted(records.columns[position]) for position in lookups.inputs]
    found = free_prefix("_lookup", records.columns)
    looked_up = records.select("*", function.asNondeterministic()(*arguments).alias(found))  # type: ignore[attr-defined]
    fields = [F.col(found)]
    if kinds[1:]:
        fields = [F.col(found).getField(str(at)) for at in range(len(kinds))]
    if drops:
        looked_up = looked_up.where(fields[-1])
    expanded, columns = _expanded(looked_up, returned, fields, free_name=found)
    return expanded.select(*map(quoted, names), *columns)


@dataclass(frozen=True, slots=True)
class _Returned:
    """A value that the function returns for a record: a column, or the rows of a lookup."""

    kind: DataType
    names: tuple[str, ...]  # the output's columns
    expands: bool = False  # an array of rows, of which each becomes a record


def _expanded(
    looked_up: DataFrame, returned: Sequence[_Returned], fields: Sequence[Column], *, free_name: str
) -> tuple[DataFrame, list[Column]]:
    """A record for each row of the lookups that expand, and the output's columns of these."""
    columns: list[Column] = []
    for at, (each, values) in enumerate(zip(returned, fields, strict=False)):
        own = [values]
        if each.expands:
            elements = [f"{free_name}{at}_{place}" for place in range(len(each.names))]
            looked_up = looked_up.select("*", F.inline_outer(values).alias(*elements))
            own = [F.col(element) for element in elements]
        columns += [column.alias(name) for column, name in zip(own, each.names, strict=True)]
    return looked_up, columns


def _returned(parts: Sequence[AddedPart], added: Sequence[StructField]) -> list[_Returned]:
    """The values for these parts, in the order of `AddedOutput`."""
    fields, returned = iter(added), []
    for part in parts:
        own = list(islice(fields, len(part.fields)))
        if part.expands:
            rows, own = own[: len(part.columns)], own[len(part.columns) :]
            kind = ArrayType(StructType(rows))
            returned.append(_Returned(kind, tuple(each.name for each in rows), expands=True))
        returned += [_Returned(each.dataType, (each.name,)) for each in own]
    return returned
