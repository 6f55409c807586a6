"""The replay filter: rows that a connector reports again never replace newer rows."""

import orjson
import pyarrow as pa
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from lookup_core.changelog.change_decoder import (
    DecoderSettings,
    LogPosition,
    ReplayFilter,
    level,
    log_position,
    snapshot_position,
)
from lookup_core.changelog.debezium_json import DebeziumDecoder
from lookup_core.changelog.event_origin import EventOrigins
from tests.lookup_core.changelog.change_messages import Message, listed, schema_of
from tests.lookup_core.changelog.logged_table import MINUTE_MS, LogConnector, LoggedTable
from tests.lookup_core.hypothesis_runs import QUICK_AND_FULL, run_model

FIRST_MS = 100_000
LATER_MS = FIRST_MS + 60_001
KEYS = range(4)
SCHEMA = schema_of({"id": pa.int64()}, {"version": pa.int64()})
DECODER = DebeziumDecoder(
    SCHEMA, DecoderSettings(EventOrigins("public.t"), with_rows=True), loads=orjson.loads
)


def log_of(*positions: LogPosition | None) -> ReplayFilter:
    """A log in which these positions were reported at one moment."""
    log = ReplayFilter()
    for position in positions:
        log.note(position, FIRST_MS)
    return log


@pytest.mark.parametrize(
    ("noted", "position", "expected"),
    [
        ([], (0, 1), True),
        ([], None, True),
        ([None], (9, 9), True),
        ([None], None, True),
        ([(10, 15), (20, 25)], (20, 25), True),  # of the same record
        ([(10, 15), (20, 25)], (20, 26), True),  # of the same transaction
        ([(10, 15), (20, 25)], (30, 5), True),  # of a later transaction that wrote it earlier
        ([(10, 15), (20, 25)], (20, 24), False),
        ([(10, 15), (20, 25)], (19, 99), False),
        ([(10, 15), (20, 25)], None, False),
        ([(20, 25), (10, 15), (15, 18)], (15, 30), False),  # a replay leaves the newest position
        ([(20, 25), (10, 15), (15, 18)], (20, 25), True),
    ],
)
def test_only_later_positions_are_news(
    noted: list[LogPosition | None], position: LogPosition | None, *, expected: bool
) -> None:
    """A position is new unless a later one was reported."""
    assert log_of(*noted).is_new(position) is expected


def test_replay_does_not_advance_time() -> None:
    """On a busy table, too, a restored database is detected after a minute."""
    log = log_of((10, 15))

    detected = [log.note((5, 5), FIRST_MS + 15_000 * step) for step in range(6)]

    assert detected == [False] * 5 + [True]


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(
    ("positions", "is_restored", "new", "old"),
    [
        ([[], [(5, 5)], [(10, 15)]], False, (10, 15), (10, 14)),
        ([[None], [(10, 15)]], False, (10, 15), (10, 14)),
        ([[(100, 101)], [(100, 101)]], True, (50, 51), (50, 50)),
        ([[None], []], False, None, None),
    ],
    ids=["newest", "without position", "restored", "none at all"],
)
def test_partitions_are_leveled(
    positions: list[list[LogPosition | None]],
    *,
    is_restored: bool,
    new: LogPosition | None,
    old: LogPosition | None,
    order: int,
) -> None:
    """All partitions have the newest position of any; a restored log replaces others."""
    logs = [log_of(*each) for each in positions]
    if is_restored:
        logs[1].note(new, LATER_MS)

    level(logs[::order])

    assert [log.is_new(new) for log in logs] == [True] * len(logs)
    assert [log.is_new(old) for log in logs] == [old is None] * len(logs)
    assert [log.is_other_log((1, 1), LATER_MS) for log in logs] == [
        new is not None and not is_restored
    ] * len(logs)


@pytest.mark.parametrize(
    ("sequence", "position"),
    [
        ('["24381176","24381232"]', (24381176, 24381232)),
        ('[ "1", "2" ]', (1, 2)),
        ('[null,"24380632"]', (0, 24380632)),
        ('["1",null]', None),
        ('["1"]', None),
        ('["1","-2"]', None),
        (None, None),
        (7, None),
    ],
)
def test_positions_are_those_of_debezium(sequence: object, position: LogPosition | None) -> None:
    """A position has both numbers; a row that was read is behind all committed changes."""
    assert log_position(sequence) == position
    assert snapshot_position(sequence) == (position and (position[1], position[1]))


class ReplayModel(RuleBasedStateMachine):
    """Writers, a connector that restarts, and a sidecar that reads its partitions."""

    def __init__(self) -> None:
        super().__init__()
        self.table = LoggedTable()
        self.connector = LogConnector(self.table)
        self.unread: list[list[Message]] = []  # of each partition
        self.logs: list[ReplayFilter] = []
        self.applied = dict.fromkeys(KEYS, 0)  # {key: newest version that was reported as row}
        self.known: dict[int, int | None] = dict.fromkeys(KEYS, 0)  # None: unknown
        self.may_have_holes = False

    @initialize()
    def begin(self) -> None:
        """There is one partition at first."""
        self.add_partition()

    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=1, unique=True), is_gone=st.booleans())
    def write(self, keys: list[int], is_gone: bool) -> None:  # noqa: FBT001  by name
        """A transaction writes some rows in one record, and stays open."""
        if free := self.table.free_keys(keys):
            self.table.write(self.table.begin(), free, is_deletion=is_gone)

    @precondition(lambda self: self.table.open)
    @rule(data=st.data())
    def write_more(self, data: st.DataObject) -> None:
        """An open transaction writes one of its rows again."""
        transaction = data.draw(st.sampled_from(self.table.open))
        self.table.write(transaction, [transaction[0].key])

    @precondition(lambda self: self.table.open)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        """A transaction commits, in any order."""
        self.table.commit(data.draw(st.sampled_from(self.table.open)))

    @rule()
    def report(self) -> None:
        """The connector reports the next transaction."""
        self.send(self.connector.report())

    @rule(data=st.data())
    def restart(self, data: st.DataObject) -> None:
        """The connector restarts at a former place."""
        self.connector.restart(
            data.draw(st.integers(self.connector.earliest, self.connector.place))
        )
        self.may_have_holes = True

    @rule()
    def read_rows(self) -> None:
        """An incremental snapshot follows all that was committed."""
        self.report_all()
        self.send(self.connector.read())

    @precondition(lambda self: any(not row.is_deletion for row in self.table.rows.values()))
    @rule()
    def lose_place(self) -> None:
        """A connector that lost its place reads all rows."""
        self.read_all()
        self.send(self.connector.lose_place())
        self.read_all()
        self.may_have_holes = True  # one partition forgets what others reported before

    @rule(data=st.data())
    def take(self, data: st.DataObject) -> None:
        """Some messages of a partition are read."""
        partition = data.draw(st.integers(0, len(self.unread) - 1))
        count = data.draw(st.integers(1, 5))
        messages = self.unread[partition][:count]
        self.unread[partition] = self.unread[partition][count:]
        self.apply(messages, self.logs[partition])

    @rule()
    def take_all(self) -> None:
        """When all messages are read, each known row is that of the table."""
        self.report_all()
        self.read_all()
        for key, written in self.table.rows.items():
            assert self.known[key] in {None, written.version}
            assert self.may_have_holes or self.known[key] is not None

    @precondition(lambda self: len(self.unread) < 3)
    @rule()
    def add_partition(self) -> None:
        """A partition is added, which gets some of the keys."""
        self.read_all()
        self.logs.append(ReplayFilter())
        level(self.logs)
        self.unread.append([])

    @rule()
    def restore(self) -> None:
        """Another database with a shorter log replaces this one."""
        self.read_all()
        time_ms, version = self.table.time_ms + 2 * MINUTE_MS, self.table.version
        self.table = LoggedTable(first_lsn=1, time_ms=time_ms, version=version)
        self.connector = LogConnector(self.table)
        self.may_have_holes = True  # its first rows could be those of a replay

    def send(self, messages: list[Message]) -> None:
        """Append the messages to the partitions of their keys."""
        for message in messages:
            key = orjson.loads(message.key or b"")["id"]
            self.unread[key % len(self.unread)].append(message)

    def report_all(self) -> None:
        """The connector reports all committed transactions."""
        while messages := self.connector.report():
            self.send(messages)

    def read_all(self) -> None:
        """All messages are read."""
        for partition, log in enumerate(self.logs):
            self.apply(self.unread[partition], log)
            self.unread[partition] = []

    def apply(self, messages: list[Message], log: ReplayFilter) -> None:
        """Apply changes; a reported row is never older than one reported before."""
        versions = iter(messages)
        for key, word, *_ in listed(DECODER.decode(messages, log).changes):
            if key == "table":
                self.known = dict.fromkeys(KEYS)
                continue
            version = next(versions).timestamp
            self.known[key[0]] = None if word == "changed" else version
            if word != "changed":
                assert version >= self.applied[key[0]]
                self.applied[key[0]] = version


@QUICK_AND_FULL
def test_replays_restore_no_old_rows(examples: int) -> None:
    """Restarts, snapshots, restores and new partitions never bring an old row back."""
    run_model(ReplayModel, examples)
