"""The fake sidecar that ships with the client: rows, defaults, versions and errors in a job."""

import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- its usual name

from sidelook import InvalidRequest, LookupFailed, Sidecar
from sidelook.testing import FakeDimension, FakeSidecar

CUSTOMERS = [{"id": 7, "name": "Ada"}, {"id": 8, "name": "Bert"}]
OWNERS = [
    {"plane": "N1", "owner": "Ada", "since": date(2024, 1, 1)},
    {"plane": "N1", "owner": "Bert", "since": date(2024, 6, 1)},
]
VISITS = pa.table({"airport": ["HNL", "HNL"], "year": [2012, 2013]})


@pytest.fixture(scope="module")
def dims() -> Iterator[Sidecar]:
    """A fake sidecar with one dimension of each kind."""
    dimensions = {
        "customers": FakeDimension(
            CUSTOMERS, key="id", errors={9: "backend_unavailable", 10: "timeout"}
        ),
        "defaults": FakeDimension(CUSTOMERS, key="id", default={"name": "unknown"}),
        "owners": FakeDimension(OWNERS, key=["plane"], valid_from="since"),
        "visits": FakeDimension(VISITS, key="airport", match="all"),
    }
    with FakeSidecar(dimensions) as dims:
        yield dims


@pytest.mark.full
def test_job_gets_rows_defaults_and_errors(spark_session: SparkSession, dims: Sidecar) -> None:
    """Found, missing and failed keys have the outcomes of the real sidecar."""
    orders = spark_session.createDataFrame(
        [(1, 7), (2, 1), (3, 9), (4, 10)], "order int, customer long"
    )
    by_status = dims.lookup_join(
        "customers", on="customer", on_error="null", on_timeout="null", status_column="_status"
    )

    plain = orders.transform(by_status).orderBy("order").collect()
    filled = orders.transform(dims.lookup_join("defaults", on="customer")).orderBy("order")

    assert [(row.name, row["_status"].outcome, row["_status"].error) for row in plain] == [
        ("Ada", "hit", None),
        (None, "missing", None),
        (None, "error", "backend_unavailable"),
        (None, "timeout", "timeout"),
    ]
    assert [row.name for row in filled.collect()] == ["Ada", *["unknown"] * 3]
    with pytest.raises(Exception, match=LookupFailed.__name__):
        orders.transform(dims.lookup_join("customers", on="customer")).collect()


@pytest.mark.full
def test_job_gets_versions_and_all_rows(spark_session: SparkSession, dims: Sidecar) -> None:
    """As-of lookups choose a version, and `match` gives every row; SQL functions work."""
    trips = spark_session.createDataFrame(
        [("N1", date(2024, 7, 1), "HNL")], "plane string, day date, dest string"
    )
    join = dims.lookup_joins(
        [
            dims.lookup_join("owners", on="plane", as_of="day", columns=["owner"]),
            dims.lookup_join("visits", on="dest", expand=True),
        ]
    )
    dims.register(spark_session, dimensions=["customers"])

    found = trips.transform(join).select("owner", "year").collect()
    in_sql = spark_session.range(7, 8).select(F.expr("lookup_customers(id).name")).collect()

    assert found == [Row(owner="Bert", year=2012), Row(owner="Bert", year=2013)]
    assert [list(row) for row in in_sql] == [["Ada"]]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"key": "nope"}, "no column nope in the rows; they have: id, name"),
        ({"key": "id", "match": "first"}, "match='first': it is None or 'all'"),
        ({"key": "id", "errors": {1: "odd"}}, "'odd' is not a valid ErrorCode"),
        ({"key": "id", "errors": {1: "draining"}}, "'draining' is not the error of a key"),
        ({"key": "id", "errors": {(1, 2): "type"}}, "the key (1, 2); a key has 1 values"),
        ({"key": []}, "a column is repeated, or the key has none"),
        ({"key": "id", "default": {"nope": 1}}, "no column nope in the rows"),
        ({"key": "id", "default": {"name": 1}}, "default does not fit the columns"),
        ({"key": "id", "valid_to": "id"}, "valid_to needs valid_from"),
        ({"key": "id", "valid_from": "id", "match": "all"}, "match excludes both"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, object], error: str) -> None:
    """Unknown columns, matches and error codes are named."""
    with pytest.raises(ValueError, match=re.escape(error)):
        FakeDimension(CUSTOMERS, **options)  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize(
    ("rows", "error"),
    [([], "no rows"), ([{"id": 1, "name": None}], "'name' has type null: give an Arrow table")],
)
def test_rows_need_types(rows: list[dict[str, object]], error: str) -> None:
    """Rows without a value of each column have no types."""
    with pytest.raises(ValueError, match=error):
        FakeDimension(rows, key="id")


@pytest.mark.full
def test_keys_have_the_types_of_the_service(spark_session: SparkSession, dims: Sidecar) -> None:
    """A key that does not convert exactly is refused at once; a value out of range fails alone."""
    texts = spark_session.createDataFrame([("7",)], "customer string")
    join = dims.lookup_join("customers", on="customer")
    small = FakeDimension(pa.table({"id": pa.array([7], pa.int32()), "n": [1]}), key="id")
    orders = spark_session.createDataFrame([(7,), (2**40,)], "customer long")

    with pytest.raises(InvalidRequest, match="key_type"):
        texts.transform(join)
    with FakeSidecar({"small": small}) as other:
        by_status = other.lookup_join("small", on="customer", on_error="null", status_column="_s")
        found = orders.transform(by_status).select("n", "_s.error").collect()
        again = orders.limit(1).transform(by_status).count()

    assert ([tuple(row) for row in found], again) == ([(1, None), (None, "type")], 1)


@pytest.mark.full
def test_large_dimensions_are_indexed_once(spark_session: SparkSession) -> None:
    """Lookups of 100,000 keys end within their timeout."""
    table = pa.table({"id": range(100_000), "n": range(100_000)})
    with FakeSidecar({"numbers": FakeDimension(table, key="id")}) as dims:
        found = spark_session.range(100_000).transform(dims.lookup_join("numbers", on="id"))

        assert found.where("id <> n OR n IS NULL").count() == 0


def test_nested_blocks_end_one_by_one() -> None:
    """The end of an inner block of the same fake leaves the outer one open."""
    fake = FakeSidecar({"customers": FakeDimension(CUSTOMERS, key="id")})

    with fake as outer:
        with fake as inner:
            assert inner.url != outer.url
        assert Path(outer.url.removeprefix("unix://")).exists()

    assert not Path(outer.url.removeprefix("unix://")).exists()
