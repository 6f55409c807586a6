"""Types of PostgreSQL through Spark: arrays, structs and decimals, and keys of an enum."""

from decimal import Decimal
from pathlib import Path

from pyspark.sql import SparkSession

from spark_client import Sidecar
from tests.end_to_end.sidecars import configured, postgres, url_of
from tools.processes.postgres_server import Database

WAIT_S = 20.0
TABLE = (
    "CREATE TYPE mood AS ENUM ('happy', 'sad')",
    """CREATE TABLE things (code char(4), mood mood, tags text[], days date[], price numeric,
    attrs jsonb, lines jsonb, PRIMARY KEY (code, mood))""",
    """INSERT INTO things VALUES ('a', 'happy', '{x,NULL}', '{2024-02-29}', 1.50,
    '{"size": 5, "net": {"of": [1.10]}}', '[{"sku": "k"}, null]')""",
    "INSERT INTO things VALUES ('b', 'sad')",
)
REQUESTED = {
    "price": "decimal(9,2)",
    "attrs": "struct<size int, net: struct<of array<decimal(5,2)>>>",
    "lines": "array<struct<sku string>>",
}
DDL = """tags array<string>, days array<date>, price decimal(9,2),
attrs struct<size: int, net: struct<of: array<decimal(5,2)>>>, lines array<struct<sku: string>>"""


def test_nested_columns_arrive_in_spark(
    spark_session: SparkSession, database: Database, folder: Path
) -> None:
    """Arrays, structs and decimals have Spark's types, also with `schema=` and in SQL."""
    database.execute(*TABLE)
    things = postgres(database.dsn(), "things", key=["code", "mood"], types=REQUESTED)
    events = spark_session.createDataFrame(
        [(1, "a   ", "happy"), (2, "b", "sad"), (3, "a", "glad"), (4, None, "sad")],
        "n long, code string, mood string",
    )

    process = configured(folder, {"things": things}, allow_inline_secrets=True)
    with process.running():
        sidecar = Sidecar(url_of(process), connect_timeout=WAIT_S)
        described = events.transform(sidecar.lookup_join("things", on=["code", "mood"]))
        given = events.transform(sidecar.lookup_join("things", on=["code", "mood"], schema=DDL))
        lookup = sidecar.lookup_udf("things", columns=["attrs"])
        sizes = events.select("n", lookup("code", "mood").attrs.net.of[0].alias("net"))
        rows = [row.asDict(recursive=True) for row in described.orderBy("n").collect()]

        assert [row.asDict(recursive=True) for row in given.orderBy("n").collect()] == rows
        assert [row.net for row in sizes.orderBy("n").collect()] == [
            Decimal("1.10"),
            None,
            None,
            None,
        ]

    first, *others = ({name: row[name] for name in described.columns[3:]} for row in rows)
    assert described.schema["attrs"].dataType.simpleString() == (
        "struct<size:int,net:struct<of:array<decimal(5,2)>>>"
    )
    assert {**first, "days": str(first["days"][0])} == {
        "tags": ["x", None],
        "days": "2024-02-29",
        "price": Decimal("1.50"),
        "attrs": {"size": 5, "net": {"of": [Decimal("1.10")]}},
        "lines": [{"sku": "k"}, None],
    }
    assert others == [dict.fromkeys(first)] * 3
