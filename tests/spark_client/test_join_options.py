"""Options of the public API: the resulting values, and the refused ones."""

import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import ArrayType, StructType

from lookup_core.errors import InvalidRequest
from lookup_core.keys.typed_keys import EXACT_NAMES
from lookup_core.lookup_options import LookupOptions
from lookup_core.protocol.frames import MAX_CHANNELS, TraceParent
from spark_client import Sidecar
from spark_client.driver.input_columns import ColumnNames, ParsedOn
from spark_client.driver.lookup_join import LookupJoin
from spark_client.driver.options import PassOptions, RetryMissing, duration_ms
from spark_client.driver.pass_function import MIN_FUNCTION_COLUMNS, is_function
from spark_client.lookup_settings import (
    FailurePolicy,
    JoinKeys,
    JoinType,
    LookupSettings,
    OutputMode,
    PassSettings,
    Via,
)
from spark_client.transport.connections import SidecarAddress
from spark_client.transport.endpoint import ClientTls

ROOT = Path(__file__).parent.parent.parent
URL = "unix:///run/sidelook/sidelook.sock"
JOIN = Sidecar(URL).lookup_join("customers", on="id")
TRACEPARENT = f"00-{'a' * 32}-{'b' * 16}-01"


def test_defaults_are_the_documented_ones() -> None:
    """A lookup join with nothing but its key."""
    join = Sidecar(URL).lookup_join("customers", on="customer_id")

    assert join == LookupJoin(
        address=SidecarAddress(URL, None, 60.0),
        dimension="customers",
        on=ParsedOn(JoinKeys(("customer_id",), ("customer_id",))),
        settings=LookupSettings(),
        options=PassOptions(),
    )
    assert join.options.settings(None) == PassSettings(OutputMode.ORDERED, 20_000, timeout_s=5.0)


def test_options_are_carried_over() -> None:
    """Each option ends in its value, durations in milliseconds."""
    sidecar = Sidecar("https://h:1", "/t", 1.5, ca_file="ca", cert_file="crt", key_file="key")

    join = sidecar.lookup_join(
        "d",
        on={"a": "b"},
        columns=["x"],
        how="inner",
        mode="unordered",
        capacity=7,
        timeout=0.5,
        on_timeout="null",
        on_error="null",
        max_age="1 minute",
        retry_missing={"max_retries": 3, "delay": 0.25},
        retry_if="x",
        event_time="ts",
        as_of="at",
        watermark_delay="10 seconds",
        watermark_interval="1 minute",
        via="batch",
        prefix="p_",
        status_column="_s",
        schema="x string",
        show_keys=False,
        traceparent=TRACEPARENT,
    )

    assert join == LookupJoin(
        address=SidecarAddress("https://h:1", "/t", 1.5, ClientTls("ca", "crt", "key")),
        dimension="d",
        on=ParsedOn(JoinKeys(("a",), ("b",), are_exact=True)),
        columns=("x",),
        schema="x string",
        prefix="p_",
        status_column="_s",
        how=JoinType.INNER,
        as_of="at",
        settings=LookupSettings(
            on_timeout=FailurePolicy.NULL,
            on_error=FailurePolicy.NULL,
            trace=TraceParent(TRACEPARENT),
            show_keys=False,
            options=LookupOptions(60_000, 3, 250, "x"),
        ),
        options=PassOptions(OutputMode.UNORDERED, 7, 0.5, "ts", 10_000, 60_000, Via.BATCH),
    )
    assert join.options.settings(3) == PassSettings(
        OutputMode.UNORDERED,
        7,
        pooled_rows=3,
        timeout_s=0.5,
        event_time=3,
        watermark_delay_ms=10_000,
        watermark_interval_ms=60_000,
    )


def test_pass_options_are_shared() -> None:
    """An option of the pass may be given to it or to any of its lookups."""
    sidecar = Sidecar(URL)
    first = sidecar.lookup_join("a", on="k", mode="unordered", event_time="t")
    second = sidecar.lookup_join("b", on="k", mode="unordered", timeout=3)

    joins = sidecar.lookup_joins([first, second], capacity=5, watermark_delay="2 s")

    assert joins.lookups == (first, second)
    assert joins.options == PassOptions(OutputMode.UNORDERED, 5, 3, "t", 2_000)


@pytest.mark.parametrize(
    ("first", "second", "given", "text"),
    [
        ({"mode": "ordered"}, {"mode": "unordered"}, {}, "mode is ordered and unordered; all"),
        ({}, {"capacity": 5}, {"capacity": 6}, "capacity is 6 and 5; all lookups of a pass"),
        ({"timeout": 1}, {"timeout": 2}, {}, "timeout is 1 and 2"),
        ({"event_time": "t"}, {"event_time": "u"}, {}, "event_time is t and u"),
        ({"via": "udf"}, {"via": "auto"}, {}, "via is udf and auto"),
        ({"via": "udf"}, {}, {"mode": "unordered"}, "via='udf' keeps the order"),
        ({}, {}, {"watermark_delay": "1 s"}, "need event_time"),
        ({}, {}, {"capacity": 0}, "at least 1"),
    ],
)
def test_contradictions_of_a_pass_are_refused(
    first: dict[str, Any], second: dict[str, Any], given: dict[str, Any], text: str
) -> None:
    """Two values of one option are an error that has both."""
    sidecar = Sidecar(URL)
    lookups = [sidecar.lookup_join("d", on="k", **options) for options in (first, second)]

    with pytest.raises(ValueError, match=text):
        sidecar.lookup_joins(lookups, **given)


@pytest.mark.parametrize(
    ("via", "mode", "columns", "expected"),
    [
        (None, None, MIN_FUNCTION_COLUMNS, True),
        (Via.AUTO, OutputMode.ORDERED, MIN_FUNCTION_COLUMNS, True),
        (Via.AUTO, OutputMode.ORDERED, MIN_FUNCTION_COLUMNS - 1, False),
        (None, OutputMode.UNORDERED, 1000, False),
        (None, OutputMode.KEY_ORDERED, 1000, False),
        (Via.BATCH, None, 1000, False),
        (Via.UDF, None, 1, True),
    ],
)
def test_width_and_mode_choose_the_way(
    via: Via | None, mode: OutputMode | None, columns: int, *, expected: bool
) -> None:
    """Ordered passes of wide records are functions; PySpark before 4.1 has none."""
    assert is_function(via, mode, columns=columns) is expected
    assert not is_function(None, mode, columns=columns, has_functions=False)


def test_older_pyspark_refuses_functions() -> None:
    """Before PySpark 4.1, `via="udf"` is an error with the remedy."""
    with pytest.raises(ValueError, match=r"needs PySpark 4\.1 or newer; use via='batch'"):
        PassOptions(via=Via.UDF).check(has_functions=False)
    PassOptions(via=Via.AUTO).check(has_functions=False)


@pytest.mark.parametrize(
    "lookups",
    [[], ["airports"], JOIN, iter([JOIN]), ""],
    ids=["none", "names", "one", "iterator", "text"],
)
def test_pass_needs_lookups(lookups: Any) -> None:  # noqa: ANN401 -- also wrong ones
    """An empty list, another collection, and anything but `lookup_join(…)`, is refused."""
    with pytest.raises(ValueError, match=r"at least one lookup_join\(…\)"):
        Sidecar(URL).lookup_joins(lookups)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"mode": "sorted"}, "mode must be ordered or unordered or key_ordered, not 'sorted'"),
        ({"how": "outer"}, "how must be left or inner or semi or anti"),
        ({"on_timeout": "ignore"}, "on_timeout must be fail or null or default"),
        ({"on_error": ""}, "on_error must be fail or null or default"),
        ({"expand": True, "how": "semi"}, "how='semi' adds no rows"),
        ({"expand": True, "how": "anti"}, "how='anti' adds no rows"),
        ({"expand": True, "columns": []}, "expand needs at least one"),
        ({"expand": True, "as_of": "t"}, "nothing to expand"),
        ({"on_error": "default", "as_of": "t"}, "with versions has no default row"),
        ({"via": "arrow"}, "via must be auto or batch or udf, not 'arrow'"),
        ({"via": "udf", "mode": "unordered"}, "use via='batch' for mode='unordered'"),
        ({"via": "udf", "mode": "key_ordered"}, "use via='batch' for mode='key_ordered'"),
        ({"expand": True, "via": "udf"}, "with expand use via='batch'"),
        ({"max_age": -1}, "max_age is seconds, 0 to 9007199254740, or a text as '10 .*', not -1"),
        ({"max_age": True}, "max_age is seconds"),
        ({"max_age": float("inf")}, "max_age is seconds"),
        ({"max_age": "15000000 weeks"}, "max_age is 0 to 9007199254740991 milliseconds"),
        ({"max_age": "soon"}, "no duration"),
        ({"retry_missing": 3}, "retry_missing is .* not 3"),
        ({"retry_missing": {"max_retries": 1}}, r'"delay": "500 ms"}, with both, not {'),
        ({"retry_missing": {"max_retries": 1.5, "delay": 1}}, "is a whole number, not 1.5"),
        ({"retry_missing": {"max_retries": 101, "delay": 1}}, "it must be 0 to 100"),
        ({"retry_missing": {"max_retries": 1, "delay": 0}}, "it must be 1 ms to 1 h"),
        (
            {"retry_missing": {"max_retries": 1, "delay": 2}, "timeout": 2},
            "delay is 2 s, and timeout is 2 s, so no retry can run; shorten the delay or raise",
        ),
        ({"retry_if": "name"}, "there are no retries; set retry_missing"),
        ({"retry_if": ""}, "retry_if is the name of a dimension's column, not ''"),
        ({"columns": "name"}, r"write \['name'\]"),
        ({"columns": [5]}, r"columns is a list of names, not \[5\]"),
        ({"columns": {"a"}}, "columns is a list of names, not {'a'}"),
        ({"columns": ["a", "b", "a"]}, "columns has a twice; name each once"),
        ({"expand": "no"}, "expand is True or False, not 'no'"),
        ({"show_keys": 0}, "show_keys is True or False, not 0"),
        ({"prefix": None}, "prefix is a text before the names, not None"),
        ({"status_column": ""}, "status_column is the name of a new column, not ''"),
        ({"status_column": True}, "status_column"),
        ({"schema": " "}, "schema is DDL as 'name string, tier int', or a StructType, not ' '"),
        ({"dimension": ""}, "dimension is one name, not ''"),
        ({"capacity": 0}, "capacity is a whole number of records, at least 1"),
        ({"capacity": 1.0}, "capacity"),
        ({"capacity": True}, "capacity"),
        ({"timeout": 0}, "timeout is a number of seconds, more than 0 and at most 4294967, not 0"),
        ({"timeout": 4_294_968}, "timeout"),
        ({"timeout": True}, "timeout"),
        ({"timeout": -1.0}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"timeout": float("inf")}, "timeout"),
        ({"watermark_delay": "1 s"}, "need event_time"),
        ({"watermark_interval": "1 s"}, "need event_time"),
        ({"event_time": "t", "watermark_delay": "soon"}, "no duration"),
        ({"event_time": "t", "watermark_delay": 10}, "delay is a text as '10 seconds', not 10"),
        ({"event_time": "t", "watermark_interval": "0 ms"}, "watermark_interval is 1 to "),
        ({"event_time": 5}, "is a column's name, not 5; add a computed column to the records"),
        ({"as_of": ""}, "as_of is a column's name"),
        ({"on": None}, "at least one column"),
        ({"on": ""}, "not ''"),
        ({"on": [("a", "")]}, "a list of pairs"),
        ({"on": []}, "at least one column"),
        ({"on": 5}, "not 5"),
        ({"on": ["a", "a"]}, "twice: a, a"),
        ({"on": ["a", 5]}, "a list of pairs"),
        ({"on": {"a": 5}}, "a list of pairs"),
        ({"on": [("a", "b"), "c"]}, "a list of pairs"),
        ({"on": [("a", "b", "c")]}, "a list of pairs"),
        ({"on": b"id"}, "not b'id'"),
        ({"traceparent": ""}, "traceparent is 00-"),
        ({"traceparent": 5}, "traceparent is 00-"),
        ({"traceparent": "00-1-2-01"}, "traceparent is 00-"),
        ({"traceparent": TRACEPARENT + "0"}, "traceparent is 00-"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], text: str) -> None:
    """An impossible option is an error in the call, not in a task."""
    with pytest.raises(ValueError, match=text):
        Sidecar(URL).lookup_join(**{"dimension": "d", "on": "k", **options})


@pytest.mark.parametrize(
    ("url", "options", "text"),
    [
        ("/run/sidelook.sock", {}, "neither unix"),
        (5, {}, "url is a text as unix:///path/of.sock or http://host:port, not 5"),
        (URL, {"connect_timeout": 0}, "connect_timeout is a number of seconds, more than 0"),
        (URL, {"connect_timeout": True}, "connect_timeout"),
        (URL, {"connect_timeout": "5"}, "connect_timeout"),
        (URL, {"connect_timeout": float("inf")}, "connect_timeout"),
        (URL, {"token_file": ""}, "token_file is the path of a file, not ''"),
        (URL, {"ca_file": "ca"}, "need a url with https://"),
        ("http://h:1", {"cert_file": "c", "key_file": "k"}, "need a url with https://"),
        ("https://h:1", {"cert_file": "crt"}, "must be given together"),
        ("https://h:1", {"key_file": "key"}, "must be given together"),
    ],
)
def test_wrong_addresses_are_refused(url: str, options: dict[str, Any], text: str) -> None:
    """Another URL, no time to connect, and TLS files without effect are refused."""
    with pytest.raises(ValueError, match=text):
        Sidecar(url, **options)


@pytest.mark.parametrize(
    ("call", "options", "text"),
    [
        *(
            ("repartition_for", {"partitions": count}, f"from 1 to 4096, not {count!r}")
            for count in (0, 4097, True, 2.0, "8")
        ),
        ("repartition_for", {"sequence": []}, "sequence must name at least one column"),
        ("repartition_for", {"sequence": [5]}, r"sequence is a list of names, not \[5\]"),
        ("repartition_for", {"sequence": ""}, "sequence is a list of names"),
        ("repartition_for", {"dimension": ["a"]}, r"dimension is one name, not \['a'\]; chain"),
        ("lookup_udf", {"columns": []}, "at least one column"),
        ("lookup_udf", {"schema": StructType()}, "at least one column"),
        ("lookup_udf", {"deterministic": "no"}, "deterministic is True or False, not 'no'"),
        ("lookup_udf", {"timeout": 1e10}, "timeout is a number of seconds"),
        ("local", {"config": ""}, "config is the path of a file, not ''"),
        ("local", {"config": "x", "start_timeout": "5"}, "start_timeout is a number of seconds"),
    ],
)
def test_other_calls_refuse_wrong_options(call: str, options: dict[str, Any], text: str) -> None:
    """Each call refuses an impossible option before it does anything."""
    dimension = {} if call == "local" else {"dimension": "d"}

    with pytest.raises(ValueError, match=text):
        getattr(Sidecar(URL), call)(**{**dimension, **options})


def test_retries_begin_before_the_timeout() -> None:
    """The timeout of the pass bounds the delay; a function has the default timeout."""
    slow: RetryMissing = {"max_retries": 1, "delay": "10 s"}
    join = Sidecar(URL).lookup_join("customers", on="id", retry_missing=slow)

    assert Sidecar(URL).lookup_joins([join], timeout=11).lookups == (join,)
    with pytest.raises(ValueError, match=r"delay is 10 s, and timeout is 9 s"):
        Sidecar(URL).lookup_joins([join], timeout=9)
    with pytest.raises(ValueError, match=r"delay is 10 s, and timeout is 5 s"):
        Sidecar(URL).lookup_udf("customers", retry_missing=slow, schema="x string")


def test_lookups_of_a_pass_are_bounded() -> None:
    """A pass has at most as many lookups of one sidecar as a connection has channels."""
    other = Sidecar("http://h:1").lookup_join("customers", on="id")

    joins = Sidecar(URL).lookup_joins([*[JOIN] * MAX_CHANNELS, other])

    assert len(joins.lookups) == MAX_CHANNELS + 1
    with pytest.raises(ValueError, match="lookups has 65 of one sidecar, and a pass at most 64"):
        Sidecar(URL).lookup_joins([*[JOIN] * MAX_CHANNELS, other, JOIN])


@pytest.mark.parametrize(
    ("on", "keys"),
    [
        ("id", JoinKeys(("id",), ("id",))),
        (["b", "a"], JoinKeys(("b", "a"), ("b", "a"))),
        (
            {"customer": "id", "shop": "store"},
            JoinKeys(("customer", "shop"), ("id", "store"), are_exact=True),
        ),
        (
            [("customer", "id"), ("customer", "store")],
            JoinKeys(("customer", "customer"), ("id", "store"), are_exact=True),
        ),
    ],
)
def test_forms_of_on_are_pairs(on: Any, keys: JoinKeys) -> None:  # noqa: ANN401 -- three forms
    """A name, names, or a mapping or pairs, whose names must be those of the key."""
    join = Sidecar(URL).lookup_join("d", on=on)

    assert join.on.keys == keys
    assert join.on.keys.metadata == (EXACT_NAMES if keys.are_exact else None)


def test_joins_travel_by_value() -> None:
    """A sidecar and a join can be pickled, so that a Connect server gets them."""
    sidecar = Sidecar(URL)
    join = sidecar.lookup_join("d", on="k", event_time="t")

    assert pickle.loads(pickle.dumps((sidecar, join))) == (sidecar, join)  # noqa: S301 -- our own
    assert join.options.event_time == "t"


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("10 seconds", 10_000),
        ("1 second", 1_000),
        ("500ms", 500),
        ("250 milliseconds", 250),
        ("1 hour 30 minutes", 5_400_000),
        ("1h30m", 5_400_000),
        (" 2 Days ", 172_800_000),
        ("interval 1 week", 604_800_000),
        ("0 seconds", 0),
    ],
)
def test_durations_are_parsed(text: str, milliseconds: int) -> None:
    """Numbers and units, long and short, alone and added up."""
    assert duration_ms("max_age", text) == milliseconds


@pytest.mark.parametrize("text", ["", "10", "seconds", "1.5 s", "-1 second", "1 month", "10 secs!"])
def test_other_durations_are_refused(text: str) -> None:
    """The error has the known units."""
    with pytest.raises(ValueError, match=r"max_age: .* is no duration"):
        duration_ms("max_age", text)


def test_session_decides_about_case() -> None:
    """Names are compared with the case sensitivity of the session."""
    fields = StructType().add("Id", "long").add("name", "string").fields
    folding, exact = (ColumnNames(["Id", "name"], is_case_sensitive=case) for case in (False, True))

    assert [folding.path(fields, name) for name in ("id", "NAME")] == [fields[:1], fields[1:]]
    assert [exact.path(fields, name) for name in ("id", "Id")] == [None, fields[:1]]
    assert exact.unknown("id").detail == (
        "the records have no column 'id'; did you mean Id? they have Id, name"
    )


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("a", ["a"]),
        ("a.b", ["a.b"]),
        ("a.b.c", ["a", "b", "c"]),
        ("A.d.E", ["a", "d.e"]),
        ("a.d", None),
        ("a.", None),
        ("a.b.c.d", None),
        ("x.y", None),
        ("list.c", None),
    ],
)
def test_plain_names_precede_paths(name: str, path: list[str] | None) -> None:
    """A name is a column, or else a path of fields; both may contain dots."""
    inner = StructType().add("b", StructType().add("c", "long")).add("d.e", "long")
    records = (
        StructType()
        .add("x", "long")
        .add("a", inner)
        .add("a.b", "long")
        .add("list", ArrayType(StructType().add("c", "long")))
    )

    found = ColumnNames(records.names, is_case_sensitive=False).path(records.fields, name)

    assert (None if found is None else [field.name for field in found]) == path


def test_clashing_names_are_refused() -> None:
    """Two records' columns, an added name that exists, and one added twice clash."""
    names = ColumnNames(["id", "name"], is_case_sensitive=False)

    names.check_with(["tier"], ["d"])
    with pytest.raises(InvalidRequest, match="A, a; rename"):
        ColumnNames(["a", "b", "A"], is_case_sensitive=False)
    with pytest.raises(InvalidRequest, match='Name of dimension "d", name of the records; set an'):
        names.check_with(["Name"], ["d"])
    with pytest.raises(InvalidRequest, match='x of dimension "d", x of dimension "e"; set'):
        names.check_with(["x", "x"], ["d", "e"])


@pytest.mark.full
@pytest.mark.parametrize(
    ("missing", "error"),
    [
        ("pandas", "ImportError: PySpark .* cannot run lookups here: .*Pandas"),
        ("pyspark", "ImportError: spark_client needs PySpark: .*pyspark"),
    ],
)
def test_missing_libraries_have_a_remedy(missing: str, error: str, tmp_path: Path) -> None:
    """The driver refuses a lookup, and names the installation that brings the library."""
    (tmp_path / f"{missing}.py").write_text(
        f"raise ModuleNotFoundError('No module named {missing}', name={missing!r})"
    )
    program = (
        "from spark_client import Sidecar;"
        " Sidecar('http://127.0.0.1:1').lookup_join('customers', on='id')"
    )

    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": f"{tmp_path}:{ROOT}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    last = ended.stderr.splitlines()[-1]
    assert re.search(error, last), ended.stderr
    assert "pip install 'sidelook[spark]'" in last
