"""Schemas of lookups: a dimension's columns from a sidecar, and those that a join adds."""

from collections.abc import Sequence

import pyarrow as pa
from pyspark.errors import ParseException
from pyspark.sql.types import StructField, StructType, _parse_datatype_string

from lookup_core.errors import SidecarUnreachable
from lookup_core.protocol.client_channel import ChannelRequest
from spark_client.lookup_settings import Needs
from spark_client.spark_types import column_field, spark_type
from spark_client.transport.connections import ANY_KEY, SidecarAddress, described_channel
from spark_client.worker.as_of import single_columns

SCHEMA_FORMS = "DDL as 'name string, tier int', or a StructType"
STATUS = StructType().add("outcome", "string").add("age_ms", "long").add("error", "string")


def described_columns(
    address: SidecarAddress,
    dimension: str,
    *,
    columns: Sequence[str] | None,
    key: pa.Schema,
    needs: Needs,
) -> pa.Schema:
    """Read a dimension's columns from a sidecar; `columns`: names, None for all.

    If the lookup needs lists, the types are those of their elements. Raises InvalidRequest,
    BackendError or SidecarUnreachable.
    """
    names = None if columns is None else tuple(columns)
    request = ChannelRequest(
        dimension=dimension,
        columns=names,
        origin="driver",
        key=key,
        is_as_of=needs.is_as_of,
        wants_default=needs.wants_default,
        options=needs.options,
    )
    try:
        # A person waits for the driver: what a person must mend is reported at once.
        channel = described_channel(address, request, is_interactive=True)
        needs.check(channel, dimension)
        if not needs.has_lists:
            return channel.columns
        wanted = list(channel.columns)[: None if names is None else len(names)]
        return single_columns(pa.schema(wanted))
    except SidecarUnreachable as error:
        error.add_remedy("where the driver has no sidecar, give schema= with the columns' types")
        raise


def described_key(address: SidecarAddress, dimension: str) -> tuple[str, ...]:
    """Read the names of the key's columns, in order; raises as `described_columns` does."""
    try:
        request = ChannelRequest(dimension, (), "driver", ANY_KEY)
        return described_channel(address, request, is_interactive=True).key
    except SidecarUnreachable as error:
        error.add_remedy("where the driver has no sidecar, name the key's columns with on=")
        raise


def added_fields(
    columns: StructType, *, prefix: str, status_column: str | None
) -> list[StructField]:
    """The fields that a join adds behind those of the records; they are nullable."""
    added = [StructField(prefix + field.name, field.dataType) for field in columns]
    if status_column is not None:
        added.append(StructField(status_column, STATUS))
    return added


def dimension_columns(described: pa.Schema) -> StructType:
    """A dimension's columns in Spark's types; raises as `spark_type` does."""
    return StructType([StructField(field.name, spark_type(field)) for field in described])


def chosen_columns(given: StructType, names: Sequence[str] | None) -> StructType:
    """The named columns of a given schema, None for all; ValueError if it lacks one."""
    if names is None:
        return given
    missing = [name for name in names if name not in given.names]
    if missing:
        raise ValueError(f"schema= lacks {', '.join(missing)}, which columns= names")
    return StructType([given[name] for name in names])


def arrow_columns(columns: StructType) -> pa.Schema:
    """The Arrow columns to which answers are cast; raises as `column_field` does."""
    return pa.schema([column_field(field.name, field.dataType) for field in columns])


def as_struct(option: str, schema: str | StructType) -> StructType:
    """A schema given as DDL, which needs a Spark session, or as it is; or ValueError."""
    if isinstance(schema, StructType):
        return schema
    parse = getattr(StructType, "fromDDL", _parse_datatype_string)  # PySpark 3.5 has none
    cause = None
    try:
        parsed = parse(schema)
    except ParseException as error:
        parsed, cause = None, error
    if not isinstance(parsed, StructType):
        raise ValueError(f"{option} is {SCHEMA_FORMS}, not {schema!r}") from cause  # noqa: TRY004 -- as documented
    return parsed
