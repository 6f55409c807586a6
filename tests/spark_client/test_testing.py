"""The fake sidecar that ships with the client: rows, defaults, versions and errors in a job."""

from collections.abc import Iterator
from datetime import date

import pyarrow as pa
import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- its usual name

from sidelook import LookupFailed, Sidecar
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
    ],
)
def test_wrong_options_are_refused(options: dict[str, object], error: str) -> None:
    """Unknown columns, matches and error codes are named."""
    with pytest.raises(ValueError, match=error.replace("(", r"\(")):
        FakeDimension(CUSTOMERS, **options)  # type: ignore[arg-type]  # wrong on purpose
