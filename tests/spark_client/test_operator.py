"""The operator of one partition, against a sidecar in memory."""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from lookup_core.dimension_schema import VersionColumns
from lookup_core.errors import ErrorCode, InvalidRequest, LookupFailed, ProtocolViolation
from lookup_core.event_time.record_watermarks import MAX_WATERMARK_MS
from lookup_core.protocol import frames
from lookup_core.protocol.arrow_payload import decode_batch
from spark_client.lookup_settings import (
    FailurePolicy,
    JoinType,
    LookupSettings,
    PassSettings,
)
from spark_client.testing.served_dimension import ServedDimension
from spark_client.worker.as_of import version_pick
from spark_client.worker.lookup_operator import IDLE_AFTER_S
from tests.spark_client.builders import (
    CUSTOMERS,
    DIMENSIONS,
    KEY,
    Lookup,
    Partition,
    PulledInput,
    SteppedWakeUp,
    batch,
    received,
)
from tests.spark_client.memory_transport import Behaviour, ReachableSidecar

FAILING = {"customers": ServedDimension(CUSTOMERS, ("id",), {(3,): ErrorCode.BACKEND_UNAVAILABLE})}


def test_distinct_keys_travel_once() -> None:
    """A batch sends each of its distinct keys once, without an event time if it has none."""
    sidecar = ReachableSidecar({"customers": replace(DIMENSIONS["customers"], waits=True)})

    Partition(sidecar).rows(batch(*[1, 2] * 4))

    (lookup,) = received(sidecar, frames.Lookup)
    assert decode_batch(lookup.payload, KEY).to_pydict() == {"id": [1, 2]}
    assert lookup.event_time_ms is None


def test_empty_output_is_not_yielded() -> None:
    """A batch of which no record leaves gives no output."""
    partition = Partition(ReachableSidecar(DIMENSIONS), lookups=(Lookup(how=JoinType.INNER),))

    assert list(partition.run([batch(8, 9)])) == []


@pytest.mark.parametrize(
    ("keys", "count", "shown"),
    [((1, 2, 2), "3 lookups", "keys 1, 2"), ((7,), "1 lookup", "key 7")],
)
def test_timeouts_fail_the_task(keys: tuple[int, ...], count: str, shown: str) -> None:
    """The error has count, timeout, keys and remedy; the channel is cancelled and closed."""
    sidecar = ReachableSidecar(DIMENSIONS, Behaviour(is_silent=True))
    detail = (
        f'{count} of dimension "customers" had no answer within 0.02 s: {shown};'
        ' raise timeout=, or set on_timeout="null" or "default"'
    )

    with pytest.raises(LookupFailed, match=detail) as caught:
        Partition(sidecar, PassSettings(timeout_s=0.02)).rows(batch(*keys))

    assert caught.value.code is ErrorCode.TIMEOUT
    assert isinstance(sidecar.memory.received[-2], frames.Cancel)
    assert sidecar.memory.received[-1] == frames.Close(1)


def test_timeouts_of_the_sidecar_name_both_settings() -> None:
    """A lookup that the sidecar ends as timed out is not said to have waited for `timeout`."""
    late = replace(FAILING["customers"], errors={(3,): ErrorCode.TIMEOUT})
    detail = (
        '1 lookup of dimension "customers" timed out in the sidecar: key 3; if queries take longer'
        " than the dimension's timeout, raise that in the configuration"
    )

    with pytest.raises(LookupFailed, match=detail) as caught:
        Partition(ReachableSidecar({"customers": late})).rows(batch(3))

    assert caught.value.code is ErrorCode.TIMEOUT


def test_errors_fail_the_task() -> None:
    """The error has the count, the code and its explanation, the key and the remedy."""
    with pytest.raises(LookupFailed) as caught:
        Partition(ReachableSidecar(FAILING)).rows(batch(1, 3, 3))

    assert caught.value.code is ErrorCode.BACKEND_UNAVAILABLE
    assert caught.value.detail == (
        '2 lookups of dimension "customers" failed'
        f" (backend_unavailable: {ErrorCode.BACKEND_UNAVAILABLE.explanation}): key 3;"
        " on_error is 'fail':"
        ' on_error="null" keeps these records, with nulls, and "default" with the default row of'
        " the dimension, if it has one; with lookup_join, status_column adds the reason to each"
        " record"
    )


def failure_of(
    columns: dict[str, list[object]], settings: LookupSettings, *keys: str
) -> LookupFailed:
    """The error of a partition with these records, whose keys all fail, the first excepted."""
    records = pa.record_batch(columns)
    table = pa.table({**columns, "name": ["n"] * records.num_rows})
    failing = list(zip(*columns.values(), strict=True))[1:]
    dimension = ServedDimension(table, keys, dict.fromkeys(failing, ErrorCode.TYPE))
    sidecar = ReachableSidecar({"customers": dimension})
    lookup = Lookup(columns=("name",), keys=keys, settings=settings)
    with pytest.raises(LookupFailed) as caught:
        Partition(sidecar, lookups=(lookup,)).rows(records)
    return caught.value


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        ({"id": [0, 1, 2, 3]}, ": keys 1, 2, 3;"),
        ({"id": [0, 1, 1, 2, 3, 4]}, ": keys 1, 2, 3, …;"),
        ({"id": ["", "it's", "x" * 500]}, f""": keys "it's", '{"x" * 59}…;"""),
        ({"a": [0, 1, 2], "b": ["x", "y", "z"]}, ": keys (1, 'y'), (2, 'z');"),
        ({chr(97 + n): [0, 1] for n in range(9)}, ": key (1, 1, 1, 1, 1, 1, 1, 1, …);"),
    ],
)
def test_error_shows_up_to_three_keys(columns: dict[str, list[object]], shown: str) -> None:
    """Distinct keys in the order of the records, each one shortened; `show_keys` hides them."""
    error = failure_of(columns, LookupSettings(), *columns)
    silent = failure_of(columns, LookupSettings(show_keys=False), *columns)

    assert f"dimension's key){shown} on_error is 'fail'" in error.detail
    assert "dimension's key); on_error is 'fail'" in silent.detail


DEFAULT = {"name": "unknown", "tier": 9}
BY_DEFAULT = LookupSettings(on_timeout=FailurePolicy.DEFAULT, on_error=FailurePolicy.DEFAULT)


@pytest.mark.parametrize(
    ("how", "names"),
    [
        (JoinType.LEFT, ["Ann", None, "unknown"]),
        (JoinType.INNER, ["Ann", "unknown"]),
        (JoinType.ANTI, [None]),
    ],
)
def test_failures_may_give_the_default_row(how: JoinType, names: list[str | None]) -> None:
    """With `"default"` a failed lookup has a row; its status still has the failure."""
    sidecar = ReachableSidecar({"customers": replace(FAILING["customers"], default=DEFAULT)})
    lookup = Lookup(settings=BY_DEFAULT, status_column="_s", how=how)

    rows = Partition(sidecar, lookups=(lookup,)).rows(batch(1, 9, 3))

    assert [row.get("name") for row in rows] == names
    failures = [row["_s"] for row in rows if row.get("name") == "unknown"]
    failure = {"outcome": "error", "age_ms": None, "error": "backend_unavailable"}
    assert failures == [failure] * names.count("unknown")


def test_default_row_is_that_of_the_failure() -> None:
    """Only the policy of the failure counts; later lookups use the keys of default rows."""
    dimensions = {
        "customers": replace(FAILING["customers"], default=DEFAULT),
        "tiers": ServedDimension(
            pa.table({"tier": pa.array([9], pa.int32()), "x": [7]}), ("tier",)
        ),
    }
    null_on_error = replace(BY_DEFAULT, on_error=FailurePolicy.NULL)
    later = Lookup("tiers", ("x",), ("tier",))

    found = [
        Partition(ReachableSidecar(dimensions), lookups=(Lookup(settings=settings), later)).rows(
            batch(3)
        )[0]
        for settings in (BY_DEFAULT, null_on_error)
    ]

    assert [(row["name"], row["tier"], row["x"]) for row in found] == [
        ("unknown", 9, 7),
        (None, None, None),
    ]


PAIRS = pa.table({"id": [1], "tier": pa.array([1], pa.int32()), "x": [7]})


@pytest.mark.parametrize(
    ("default", "found", "outcome"), [(None, None, "missing"), ({"x": 5}, 5, "default")]
)
def test_key_of_a_failed_lookup_is_missing(
    default: dict[str, int] | None, found: int | None, outcome: str
) -> None:
    """A later lookup whose key has a column of a lookup without a row is missing, not late."""
    pairs = ServedDimension(PAIRS, ("id", "tier"), default=default)
    silent = ReachableSidecar(DIMENSIONS | {"pairs": pairs}, Behaviour(is_silent=True))
    lookups = (
        Lookup(settings=LookupSettings(on_timeout=FailurePolicy.NULL)),
        Lookup("pairs", ("x",), ("id", "tier"), status_column="_s"),
        Lookup("pairs", ("x",), ("x", "tier"), prefix="next_"),
    )

    rows = Partition(silent, PassSettings(timeout_s=0.02), lookups).rows(batch(1, 2))

    status = {"outcome": outcome, "age_ms": 0 if default else None, "error": None}
    assert [(row["x"], row["_s"], row["next_x"]) for row in rows] == [(found, status, found)] * 2


def test_known_keys_that_were_not_sent_are_shown() -> None:
    """If the time ends before a later lookup is sent, its own policy holds for its known keys."""
    dimensions = {
        "customers": replace(DIMENSIONS["customers"], default=DEFAULT),
        "pairs": ServedDimension(PAIRS, ("id", "tier")),
    }
    silent = ReachableSidecar(dimensions, Behaviour(is_silent=True))
    lookups = (Lookup(settings=BY_DEFAULT), Lookup("pairs", ("x",), ("id", "tier")))
    keys = r"4 lookups .*\"pairs\" had no answer .*: keys \(1, 9\), \(2, 9\), \(3, 9\), …; raise"

    with pytest.raises(LookupFailed, match=keys):
        Partition(silent, PassSettings(timeout_s=0.02), lookups).rows(batch(1, 2, 3, None, 4))

    assert len(received(silent, frames.Lookup)) == 1


def test_nulls_of_other_lookups_are_not_sent() -> None:
    """A later lookup sends its keys without a NULL, and only those."""
    sidecar = ReachableSidecar(DIMENSIONS | {"pairs": ServedDimension(PAIRS, ("id", "tier"))})
    lookups = (Lookup(), Lookup("pairs", ("x",), ("id", "tier")), Lookup(keys=("x",), prefix="n_"))

    rows = Partition(sidecar, lookups=lookups).rows(batch(2, None, 3, 1, 9))

    _, pairs, last = received(sidecar, frames.Lookup)
    key = pa.schema({"id": pa.int64(), "tier": pa.int32()})
    assert [row["x"] for row in rows] == [None, None, None, 7, None]
    assert decode_batch(pairs.payload, key).to_pydict() == {"id": [2, 1], "tier": [2, 1]}
    assert decode_batch(last.payload, pa.schema({"x": pa.int64()})).to_pydict() == {"x": [7]}


def test_excessive_products_name_the_key() -> None:
    """Lookups that expand to billions of rows for one record fail; `show_keys` hides its keys."""
    many = pa.table({"id": [3] * 50, "n": range(50)})
    sidecar = ReachableSidecar({"customers": ServedDimension(many, ("id",), has_all_rows=True)})
    settings = (LookupSettings(show_keys=False), *[LookupSettings()] * 5)
    lookups = tuple(
        Lookup(columns=("n",), settings=each, prefix=f"{at}_", how=JoinType.INNER, expands=True)
        for at, each in enumerate(settings)
    )
    shown = r"has 15,625,000,000 output rows \(50 x .* 'customers', 'customers': key 3, "

    with pytest.raises(InvalidRequest, match=shown):
        Partition(sidecar, lookups=lookups).rows(batch(9, 3))


def test_watermarks_reach_the_sidecar() -> None:
    """One watermark for each batch, behind its lookups, and the maximal one at the end."""
    sidecar = ReachableSidecar(DIMENSIONS)
    settings = PassSettings(pooled_rows=1, event_time=1, watermark_delay_ms=10)

    Partition(sidecar, settings).rows(batch(1, 2), batch(*range(6)))

    sent = [each.watermark_ms for each in received(sidecar, frames.Watermark)]
    kinds = [type(each) for each in sidecar.memory.received]
    lookup_and_mark = [frames.Lookup, frames.Watermark]
    assert sent == [1 - 11, 5 - 11, MAX_WATERMARK_MS]
    assert kinds == [frames.Open, *lookup_and_mark * 2, frames.Watermark, frames.Close]


@pytest.mark.parametrize("capacity", [1, 2, 3, 100])
def test_watermarks_never_overtake_lookups(capacity: int) -> None:
    """With any capacity a watermark is sent behind the records before it."""
    sidecar = ReachableSidecar(DIMENSIONS)
    settings = PassSettings(capacity=capacity, event_time=1, watermark_interval_ms=2)

    # Each row is its own event time.
    Partition(sidecar, settings).rows(batch(*range(7)))

    records, marks = 0, []
    for frame in sidecar.memory.received:
        if isinstance(frame, frames.Lookup):
            records += decode_batch(frame.payload, KEY).num_rows
        elif isinstance(frame, frames.Watermark):
            marks.append((records, frame.watermark_ms))
    assert marks[-2:] == [(7, 5), (7, MAX_WATERMARK_MS)]
    assert all(watermark_ms + 2 <= rows for rows, watermark_ms in marks[:-1])


@pytest.mark.parametrize(("waits", "sent"), [(True, [9, 7, None]), (False, [None] * 3)])
def test_lookups_carry_the_latest_event_time(
    waits: bool,  # noqa: FBT001 -- a parameter
    sent: list[int | None],
) -> None:
    """Each lookup has the latest time of its records, if the dimension waits; none for NULLs."""
    sidecar = ReachableSidecar({"customers": replace(DIMENSIONS["customers"], waits=waits)})
    times = pa.array([5, 9, 7, None, None, None], pa.int64())
    settings = PassSettings(capacity=2, event_time=1)

    Partition(sidecar, settings).rows(pa.record_batch([pa.array(range(6)), times], ["id", "ts"]))

    assert [each.event_time_ms for each in received(sidecar, frames.Lookup)] == sent


def test_long_wait_for_input_is_idleness() -> None:
    """A channel without input for some time is idle, also while it has unanswered lookups."""
    sidecar, wake_up = ReachableSidecar(DIMENSIONS, Behaviour(is_silent=True)), SteppedWakeUp()
    lookup = Lookup(settings=LookupSettings(on_timeout=FailurePolicy.NULL))
    settings = PassSettings(timeout_s=3 * IDLE_AFTER_S)
    partition = Partition(sidecar, settings, (lookup,), wake_up=wake_up, clock=wake_up.clock)
    operator = partition.operator(batch(1).schema)

    outputs = list(operator.enriched(PulledInput([batch(1), *[None] * 4, batch(2), *[None] * 4])))
    operator.close()

    kinds = [type(each) for each in sidecar.memory.received]
    assert [output.column("id").to_pylist() for output in outputs] == [[1], [2]]
    assert [each.is_idle for each in received(sidecar, frames.Status)] == [True, False, True]
    assert kinds[:4] == [frames.Open, frames.Lookup, frames.Status, frames.Cancel]


def test_large_answers_leave_in_pieces() -> None:
    """Output batches are bounded in bytes, so one large row is not copied beyond `max_bytes`."""
    table = pa.table({"id": pa.array([1], pa.int64()), "name": ["x" * 1000]})
    sidecar = ReachableSidecar({"customers": ServedDimension(table, ("id",))})
    partition = Partition(
        sidecar, PassSettings(max_bytes=10_000), lookups=(Lookup(columns=("name",)),)
    )

    outputs = list(partition.run([batch(*[1] * 100)]))

    assert sum(output.num_rows for output in outputs) == 100
    assert all(output.num_rows <= 10 for output in outputs)


TIME = pa.timestamp("us", "UTC")
HISTORY = pa.table(
    {
        "id": pa.array([1, 1, 2], pa.int64()),
        "name": ["Ann II", "Ann", "Bob"],
        "since": pa.array([10, None, 5], TIME),
        "until": pa.array([None, 8, 7], TIME),
    }
)
VERSIONS = VersionColumns("since", "until")
VERSIONED = ServedDimension(HISTORY, ("id",), versions=VERSIONS)
NAME = pa.schema({"name": pa.utf8()})
SENT = pa.schema({"name": pa.list_(pa.utf8()), "since": pa.list_(TIME), "until": pa.list_(TIME)})
# Key, time in microseconds, and the name of the version that is valid then.
TIMED = [
    *[(1, 7, "Ann"), (1, 8, None), (1, 10, "Ann II"), (2, 6, "Bob")],
    *[(2, None, None), (9, 6, None), (None, 6, None), (1, -5, "Ann")],
]


def timed(
    sidecar: ReachableSidecar,
    settings: PassSettings | None = None,
    **options: Any,  # noqa: ANN401
) -> list[Any]:
    """The output for the timed records."""
    ids, times, _ = zip(*TIMED, strict=True)
    columns = [pa.array(ids, pa.int64()), pa.array(times, TIME), pa.array(range(len(ids)))]
    records = pa.record_batch(columns, ["id", "ts", "n"])
    lookup = Lookup("history", ("name",), settings=LookupSettings(as_of=1), **options)
    return Partition(sidecar, settings or PassSettings(), (lookup,)).rows(records)


def test_versioned_keys_travel_once() -> None:
    """Records of one key at different times are one key, with the latest of the times."""
    sidecar = ReachableSidecar({"history": replace(VERSIONED, waits=True)})

    timed(sidecar)

    (opening,), (lookup,) = received(sidecar, frames.Open), received(sidecar, frames.Lookup)
    assert (opening.columns, opening.is_as_of) == (("name",), True)
    assert lookup.event_time_ms == 0  # 10 microseconds
    assert decode_batch(lookup.payload, KEY).to_pydict() == {"id": [1, 2, 9, None]}


@pytest.mark.parametrize(
    ("sent", "versions"),
    [
        (SENT, VersionColumns("nope")),
        (SENT, VersionColumns("name")),
        (pa.schema({"since": TIME}), VersionColumns("since")),
    ],
)
def test_versions_without_times_are_violations(sent: pa.Schema, versions: VersionColumns) -> None:
    """A sidecar that names columns which are no lists of times is refused."""
    with pytest.raises(ProtocolViolation):
        version_pick(sent, NAME, versions)
