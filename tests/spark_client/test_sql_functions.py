"""SQL functions of dimensions: names, refusals, evaluation, and schemas without a sidecar."""

import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from lookup_core.answer import Answer
from lookup_core.errors import ErrorCode, InvalidRequest, SidecarUnreachable
from lookup_core.keys.typed_keys import TypedKeys
from spark_client import Sidecar
from spark_client.driver.sql_functions import Dimensions
from spark_client.testing.fake_server import MemoryServer
from spark_client.testing.served_dimension import ServedDimension
from tests.spark_client.builders import ALL_DIMENSIONS, CUSTOMERS
from tests.spark_client.memory_transport import ReachableSidecar

pytestmark = pytest.mark.full

NOWHERE = Sidecar("unix:///nowhere", connect_timeout=0.01)
BEYOND_SPARK = pa.array([1], pa.decimal256(40, 0))
UNFIT = pa.table({"id": [1], "big": BEYOND_SPARK, "name": ["x"]})
COUNTED = pa.table({"id": pa.array([], pa.int64()), "times": pa.array([], pa.int64())})


@dataclass(frozen=True)
class CountedDimension(ServedDimension):
    """Each row is the number of lookups of its key so far, as if it changed between them."""

    asked: "Counter[int]" = field(default_factory=Counter)

    def answers(self, keys: TypedKeys, columns: tuple[str, ...]) -> list[Answer]:
        """Answers for all keys."""
        numbers = keys.columns.column(0).to_pylist()
        self.asked.update(number for number in numbers if number is not None)
        rows = {"id": numbers, "times": [self.asked[number] for number in numbers]}
        return ServedDimension(pa.table(rows), self.key).answers(keys, columns)


@pytest.fixture
def counted() -> CountedDimension:
    """A dimension whose rows change with each lookup."""
    return CountedDimension(COUNTED, ("id",))


@pytest.fixture
def fake(counted: CountedDimension) -> ReachableSidecar:
    """A sidecar with dimensions that can be functions and some that cannot."""
    unfit = ServedDimension(UNFIT, ("id",))
    odd = ServedDimension(CUSTOMERS, ("id",))
    return ReachableSidecar({**ALL_DIMENSIONS, "counted": counted, "unfit": unfit, "A.b-c": odd})


@pytest.fixture
def sidecar(fake: ReachableSidecar, tmp_path: Path) -> Iterator[Sidecar]:
    """Its address, for driver and workers."""
    with MemoryServer(fake).at(tmp_path / "s.sock") as url:
        yield Sidecar(url, connect_timeout=20.0)


@pytest.fixture
def session(spark_session: SparkSession) -> SparkSession:
    """A session without registered functions, with a view of four events."""
    session = spark_session.newSession()
    events = session.createDataFrame([(1, 1), (2, 9), (3, None), (4, 3)], "n int, id long")
    events.coalesce(1).createOrReplaceTempView("events")
    return session


def rows(session: SparkSession, query: str) -> list[tuple[object, ...]]:
    """The rows of a query."""
    return [tuple(row) for row in session.sql(query).collect()]


def functions(session: SparkSession) -> set[str]:
    """The names of the functions of the session that are not Spark's."""
    return {row[0] for row in session.sql("SHOW USER FUNCTIONS").collect()}


def test_each_dimension_becomes_a_function(
    sidecar: Sidecar, session: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    """All that can be functions are registered; of the others a warning has the reason."""
    with caplog.at_level(logging.WARNING):
        registered = sidecar.register(session)

    assert registered == {
        "lookup_A.b-c": "A.b-c",
        "lookup_composite": "composite",
        "lookup_counted": "counted",
        "lookup_customers": "customers",
    }
    assert functions(session) == {name.lower() for name in registered}
    history, unfit = [record.getMessage() for record in caplog.records]
    assert history.startswith("dimension history has no SQL function: ")
    assert "'history' has versions (since)" in history
    assert "column 'big' is decimal256(40, 0)" in unfit
    assert unfit.endswith("in register, list the others: dimensions={'unfit': […]}")


def test_functions_take_keys_in_order(sidecar: Sidecar, session: SparkSession) -> None:
    """A row is a struct, also of a composite key; without one, the result is NULL."""
    sidecar.register(session)

    query = "SELECT n, lookup_customers(id) AS c, lookup_customers(id).name FROM events ORDER BY n"
    assert rows(session, query) == [
        (1, ("Ann", 1), "Ann"),
        (2, None, None),
        (3, None, None),
        (4, ("Ćirić", None), "Ćirić"),
    ]
    assert rows(session, "SELECT lookup_composite(2, 'y').name, lookup_composite(2, 'x')") == [
        ("two", None)
    ]
    assert rows(session, "SELECT `LOOKUP_a.B-C`(1).tier") == [(1,)]


def test_chosen_dimensions_have_chosen_columns(sidecar: Sidecar, session: SparkSession) -> None:
    """A list of names, a list of columns, DDL or a StructType; later calls add functions."""
    wide = StructType().add("tier", "long")
    chosen: list[Dimensions] = [
        ["customers"],
        {"unfit": ["name"], "customers": "tier bigint, name string"},
        {"composite": None, "customers": wide},
    ]

    found = [sidecar.register(session, prefix=f"f{n}_", dimensions=d) for n, d in enumerate(chosen)]

    assert found == [
        {"f0_customers": "customers"},
        {"f1_customers": "customers", "f1_unfit": "unfit"},
        {"f2_composite": "composite", "f2_customers": "customers"},
    ]
    query = "SELECT f0_customers(1L), f1_customers(1L), f2_customers(1L), f1_unfit(1L)"
    types = [kind for _, kind in session.sql(query).dtypes]
    assert types == [
        "struct<name:string,tier:int>",
        "struct<tier:bigint,name:string>",
        "struct<tier:bigint>",
        "struct<name:string>",
    ]
    assert rows(session, query) == [(("Ann", 1), (1, "Ann"), (1,), ("x",))]


def test_given_schemas_need_no_sidecar(session: SparkSession) -> None:
    """A driver without a sidecar registers schemas; without them, the error has the remedy."""
    registered = NOWHERE.register(session, dimensions={"customers": "name string"})

    assert registered == {"lookup_customers": "customers"}
    assert functions(session) == {"lookup_customers"}
    for dimensions in (None, ["customers"]):
        with pytest.raises(SidecarUnreachable, match=r"give dimensions=\{name: schema\}$"):
            NOWHERE.register(session, dimensions=dimensions)


@pytest.mark.parametrize(
    ("dimensions", "code", "detail"),
    [
        (["customers", "history"], ErrorCode.BAD_REQUEST, "'history' has versions"),
        (["customers", "unfit"], ErrorCode.TYPE, 'dimension "unfit": column'),
        (["customers", "custmers"], ErrorCode.UNKNOWN_DIMENSION, "did you mean customers?"),
        ({"customers": ["name", "x"]}, ErrorCode.UNKNOWN_COLUMN, 'column "x" does not exist'),
    ],
)
def test_named_dimensions_must_fit(
    sidecar: Sidecar, session: SparkSession, dimensions: Dimensions, code: ErrorCode, detail: str
) -> None:
    """The refusal of a named dimension is raised, and nothing is registered."""
    with pytest.raises(InvalidRequest) as caught:
        sidecar.register(session, dimensions=dimensions)

    assert caught.value.code is code
    assert detail in caught.value.detail
    assert functions(session) == set()


def test_sidecar_without_functions_is_refused(session: SparkSession, tmp_path: Path) -> None:
    """If no dimension can be a function, the first reason is raised."""
    fake = ReachableSidecar({"history": ALL_DIMENSIONS["history"]})

    with (
        MemoryServer(fake).at(tmp_path / "s.sock") as url,
        pytest.raises(InvalidRequest, match="'history' has versions"),
    ):
        Sidecar(url).register(session)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prefix": None}, "prefix is a text"),
        ({"dimensions": "customers"}, r"write \['customers'\]"),
        ({"dimensions": []}, "dimensions is a list of one or more names"),
        ({"dimensions": [3]}, "dimensions is a list of names"),
        ({"dimensions": {3: None}}, "dimensions is a list of one or more names"),
        ({"dimensions": {"customers": []}}, r"\['customers'\] must name at least one column"),
        ({"dimensions": {"a": [3]}}, r"dimensions\['a'\] is a list of names, not \[3\]"),
        ({"dimensions": {"a": "name"}}, r"dimensions\['a'\] is a list of .*; write \['name'\]"),
        ({"dimensions": {"a": "x y z"}}, r"dimensions\['a'\] is DDL as .*, not 'x y z'"),
        ({"dimensions": {"a": StructType()}}, r"dimensions\['a'\] is a list of names"),
        ({"dimensions": {"a": "x int", "A": "x int"}}, "lookup_a and lookup_A; register one"),
        ({"dimensions": {"year": "x int"}, "prefix": ""}, "Spark has functions year; choose"),
        ({"dimensions": {"ear": "x int"}, "prefix": "Y"}, "Spark has functions Year; choose"),
        ({"dimensions": {"a": "x int"}, "on_error": "skip"}, "on_error must be fail or null"),
        ({"dimensions": {"a": "decimal(3,1)"}}, r"\['a'\] is DDL as .*, not 'decimal\(3,1\)'"),
    ],
)
def test_wrong_arguments_register_nothing(
    session: SparkSession, options: dict[str, object], message: str
) -> None:
    """The error names the argument; names of Spark's functions are refused in any case."""
    with pytest.raises(ValueError, match=message):
        NOWHERE.register(session, **options)  # type: ignore[arg-type]

    assert functions(session) == set()
    assert rows(session, "SELECT year(date'2013-01-01')") == [(2013,)]


def test_functions_need_arguments(sidecar: Sidecar, session: SparkSession) -> None:
    """A call without the key's columns is refused, in SQL by the task."""
    function = sidecar.lookup_udf("customers")

    sidecar.register(session, dimensions=["customers"])

    with pytest.raises(ValueError, match="lookup_customers has no argument; pass the columns of"):
        function()
    with pytest.raises(PythonException, match='"customers": the lookup function has no arg'):
        rows(session, "SELECT lookup_customers() FROM events")


def test_session_must_be_of_spark() -> None:
    """Another object in place of the session is named."""
    with pytest.raises(ValueError, match="spark is a SparkSession, not 'spark'"):
        NOWHERE.register("spark")  # type: ignore[arg-type]


def test_registering_again_replaces(sidecar: Sidecar, session: SparkSession) -> None:
    """A second call replaces the functions of the same names; other sessions have none."""
    sidecar.register(session, dimensions={"customers": ["tier"]})
    sidecar.register(session, dimensions={"customers": ["name"]})

    assert rows(session, "SELECT lookup_customers(1)") == [(("Ann",),)]
    assert functions(session.newSession()) == set()


@pytest.mark.parametrize("deterministic", [True, False])
def test_udf_calls_repeat_unless_nondeterministic(
    sidecar: Sidecar, session: SparkSession, counted: CountedDimension, *, deterministic: bool
) -> None:
    """In a DataFrame the option of `lookup_udf` has the same effect."""
    function = sidecar.lookup_udf("counted", deterministic=deterministic)

    looked_up = session.table("events").select(function("id").alias("c"))
    found = looked_up.where("c.times = 1").select("c.times").collect()

    assert [row[0] for row in found] == [2 - (not deterministic)] * 3
    assert counted.asked[1] == 2 - (not deterministic)
