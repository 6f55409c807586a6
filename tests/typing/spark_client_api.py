"""Uses of the public API of the client, which are type-checked and not run."""

from collections.abc import Callable
from typing import assert_type

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- its usual name
from pyspark.sql.types import StringType, StructField, StructType

from spark_client import (
    BackendError,
    ConfigurationError,
    InvalidRequest,
    LookupFailed,
    ProtocolViolation,
    Sidecar,
    SidecarUnreachable,
    SidelookError,
)


def enrich(events: DataFrame) -> DataFrame:
    """Lookup joins with all options, and their use in `transform`."""
    sidecar = Sidecar("unix:///run/sidelook/sidelook.sock")
    everything = sidecar.lookup_join(
        "customers",
        on={"customer_id": "id"},
        as_of="at",
        columns=["name", "segment", "tier"],
        how="inner",
        mode="unordered",
        capacity=20_000,
        timeout=5.0,
        on_timeout="fail",
        on_error="null",
        max_age="10 minutes",
        retry_missing={"max_retries": 3, "delay": 0.5},
        retry_if="segment",
        event_time="at",
        watermark_delay="10 seconds",
        watermark_interval="1 minute",
        via="auto",
        prefix="customer_",
        status_column="_lookup",
        schema="name string, segment string, tier int",
        traceparent=None,
        show_keys=False,
    )
    shortest = sidecar.lookup_join("customers", on="customer_id")
    composite = sidecar.lookup_join("weather", on=("origin", "time_hour"), columns=())
    email = F.lower("email")
    events = events.transform(sidecar.lookup_join("people", on=email, on_error="default"))
    events = events.transform(sidecar.lookup_join("people", on=[email, "region"]))
    events = events.transform(sidecar.lookup_join("people", on=[(email, "email"), ("r", "region")]))
    events = events.transform(sidecar.repartition_for("people", on=email))
    events = events.transform(sidecar.lookup_join("orders", on="person.id", expand=True))
    assert_type(events.transform(everything), DataFrame)
    assert_type(events.transform(sidecar.repartition_for("customers")), DataFrame)
    events = events.transform(
        sidecar.repartition_for("d", on={"a": "b"}, partitions=8, sequence="at")
    )
    return events.transform(everything).transform(shortest).transform(composite)


def function(events: DataFrame) -> DataFrame:
    """A lookup function, with a schema as a value."""
    sidecar = Sidecar("http://127.0.0.1:8815", token_file="/run/token", connect_timeout=5)
    schema = StructType([StructField("name", StringType())])
    name = sidecar.lookup_udf("customers", columns=["name"], schema=schema)
    assert_type(name, Callable[..., Column])
    once = sidecar.lookup_udf("customers", deterministic=False)
    return events.select(name("customer_id").alias("customer"), once("customer_id"))


def sql_functions(spark: SparkSession, sidecar: Sidecar) -> None:
    """SQL functions of all dimensions, of some, and with columns and schemas."""
    assert_type(sidecar.register(spark), dict[str, str])
    sidecar.register(spark, dimensions=["customers"], deterministic=False)
    schema = StructType([StructField("name", StringType())])
    sidecar.register(
        spark,
        prefix="",
        dimensions={"customers": ["name"], "airports": "k int", "planes": schema, "tiers": None},
        timeout=5,
        on_timeout="null",
        on_error="null",
        traceparent=None,
        show_keys=False,
    )


def wrong(sidecar: Sidecar) -> None:
    """Calls that the type checker refuses."""
    sidecar.lookup_join("d")  # type: ignore[call-arg]  # on is missing
    sidecar.lookup_join("d", "k")  # type: ignore[call-arg]  # options have names
    sidecar.lookup_join("d", on="k", how="outer")  # type: ignore[arg-type]  # no such join
    sidecar.lookup_join("d", on="k", mode="sorted")  # type: ignore[arg-type]  # no such mode
    sidecar.lookup_join("d", on="k", on_error="skip")  # type: ignore[arg-type]  # no such policy
    sidecar.lookup_udf("d", deterministic="no")  # type: ignore[arg-type]  # not a truth value
    sidecar.register("spark")  # type: ignore[arg-type]  # no session
    sidecar.lookup_join("d", on="k", via="arrow")  # type: ignore[arg-type]  # no such way
    sidecar.lookup_join("d", on="k", retry_missing={"delay": 1})  # type: ignore[arg-type]  # half of it
    sidecar.url = "unix:///other"  # type: ignore[misc]  # a sidecar is a value


ERRORS: tuple[type[SidelookError], ...] = (
    BackendError,
    ConfigurationError,
    InvalidRequest,
    LookupFailed,
    ProtocolViolation,
    SidecarUnreachable,
)
