"""No row stays stale: a dimension that follows changes, against a table with transactions.

Transactions commit, become visible, are replayed by a standby and are reported in any order, and
reads are sent, executed and landed in between. Single rules have scenarios in `test_fence`.
A commit is in the log before its rows are visible; rows of an open transaction are locked.
Ids of another system prove nothing: then rows are visible within the hold-off after their report.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lookup_core.freshness.change_fence import RecentChanges
from lookup_core.freshness.server_identity import ServerEpoch
from lookup_core.freshness.table_snapshot import IdRelation, TableSnapshot
from lookup_core.settings import BatchSettings, CacheSettings, DimensionSettings
from tests.lookup_core.dimension.scenario import Result, Scenario
from tests.lookup_core.hypothesis_runs import example_counts, run_model

KEYS = range(4)
AGE_S = 10.0
SETTINGS = DimensionSettings(
    "customers",
    cache=CacheSettings(ttl_s=1e6, negative_ttl_s=1e6),  # nothing expires
    batch=BatchSettings(max_keys=2, max_in_flight=3),
    timeout_s=2.0,
)
FIRST_ID = 2**33 - 4  # the low 32 bits wrap soon
HOLD_OFF_S = 5.0
SERVERS = [[False], [True], [False, True]]  # whether each that reads go to is a standby
FOREIGN_OFFSETS = [-1000, -2, 2, 1000]  # of the feed's ids: they look older, or newer


@dataclass(frozen=True, slots=True)
class Ids:
    """What is known of the ids, what is true, and how soon a reported change is visible."""

    relation: IdRelation
    offset: int  # of the ids that the feed reports; 0: they are of one system
    visible_after_s: float


@dataclass(slots=True)
class Transaction:
    """A transaction that has written; its states follow in this order."""

    id: int
    keys: Sequence[int]
    is_logged: bool = False
    is_visible: bool = False
    is_replayed: bool = False
    is_reported: bool = False
    reported_at: float = 0.0


@dataclass(slots=True)
class TransactionalTable:
    """Versions of rows by key; version 0 is as old as the table."""

    keys: Sequence[int]
    transactions: list[Transaction] = field(default_factory=list)  # by id
    log: list[Transaction] = field(default_factory=list)  # in the order of their commits

    def free_keys(self) -> list[int]:
        """The keys that no open transaction has written."""
        locked = {key for each in self.transactions if not each.is_visible for key in each.keys}
        return [key for key in self.keys if key not in locked]

    def write(self, keys: Sequence[int]) -> None:
        """A transaction writes free keys."""
        self.transactions.append(Transaction(FIRST_ID + len(self.transactions), keys))

    def commit(self, transaction: Transaction) -> None:
        """Put it into the log; its rows are not visible yet."""
        transaction.is_logged = True
        self.log.append(transaction)

    def replay(self) -> None:
        """Make the next transaction of the log visible on the standby."""
        next(each for each in self.log if not each.is_replayed).is_replayed = True

    def show_next(self, *, of_standby: bool) -> None:
        """Make the next transaction of the log visible to reads."""
        if of_standby:
            self.replay()
        else:
            next(each for each in self.log if not each.is_visible).is_visible = True

    def version(self, key: int, *, of_standby: bool) -> int:
        """The version that a read finds now: the id of a transaction, or 0."""
        ids = [each.id for each in self._seen(of_standby=of_standby) if key in each.keys]
        return max(ids, default=0)

    def reported_version(self, key: int) -> int:
        """The latest version that was reported."""
        return max(
            (each.id for each in self.transactions if each.is_reported and key in each.keys),
            default=0,
        )

    def snapshot(self, *, of_standby: bool) -> TableSnapshot:
        """The snapshot of a read that starts now."""
        seen = {each.id for each in self._seen(of_standby=of_standby)}
        unseen = [each.id for each in self.transactions if each.id not in seen]
        end = FIRST_ID + len(self.transactions)
        xmax = max(seen, default=FIRST_ID - 1) + 1
        listed = [] if of_standby else [each % 2**32 for each in unseen if each < xmax]
        ids = np.array(listed, np.uint32)
        return TableSnapshot(min([*unseen, xmax, end]), xmax, ids, of_standby)

    def _seen(self, *, of_standby: bool) -> list[Transaction]:
        if of_standby:
            return [each for each in self.transactions if each.is_replayed]
        return [each for each in self.transactions if each.is_visible]


IDS = [
    Ids(IdRelation.COMPARABLE, 0, np.inf),
    Ids(IdRelation.UNKNOWN, 0, AGE_S),
    Ids(IdRelation.FOREIGN, 0, HOLD_OFF_S),
    *(
        Ids(relation, offset, HOLD_OFF_S)
        for relation in (IdRelation.UNKNOWN, IdRelation.FOREIGN)
        for offset in FOREIGN_OFFSETS
    ),
]


class FenceMachine(RuleBasedStateMachine):
    """Writers, a feed and readers; no cached row is older than a reported change."""

    def __init__(self) -> None:
        super().__init__()
        self.table = TransactionalTable(KEYS)
        self.scenario = Scenario(SETTINGS)
        self.lookups = 0
        self.floor = dict.fromkeys(KEYS, 0)  # {key: the version that a new read finds}
        self.floors: dict[tuple[int, int], int] = {}  # {(lookup, position): floor when submitted}
        self.sent: dict[int, list[int]] = {}  # {query that has not read yet: its keys}
        self.read: dict[int, tuple[dict[int, str], TableSnapshot]] = {}  # {query: what it saw}

    @initialize(
        capacity=st.sampled_from([2, 100]),
        ids=st.sampled_from(IDS),
        servers=st.sampled_from(SERVERS),
    )
    def begin(self, capacity: int, ids: Ids, servers: Sequence[bool]) -> None:
        """The fence overflows, or does not; reads go to the primary, to a standby, or to either."""
        self.servers, self.ids = servers, ids
        self.scenario.state.fence = RecentChanges(
            age_s=AGE_S, hold_off_s=HOLD_OFF_S, capacity=capacity
        )
        self.scenario.state.fence.relate(ids.relation)

    @precondition(lambda self: self.table.free_keys())
    @rule(data=st.data())
    def write(self, data: st.DataObject) -> None:
        """A transaction writes some rows."""
        keys = st.lists(
            st.sampled_from(self.table.free_keys()), min_size=1, max_size=3, unique=True
        )
        self.table.write(data.draw(keys))

    @precondition(lambda self: self._some(is_logged=False))
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        """A transaction is in the log."""
        self.table.commit(data.draw(st.sampled_from(self._some(is_logged=False))))

    @precondition(lambda self: self._some(is_logged=True, is_visible=False))
    @rule(data=st.data())
    def show(self, data: st.DataObject) -> None:
        """The rows of a transaction become visible."""
        open_ones = self._some(is_logged=True, is_visible=False)
        data.draw(st.sampled_from(open_ones)).is_visible = True

    @precondition(lambda self: self._some(is_logged=True, is_replayed=False))
    @rule()
    def replay(self) -> None:
        """The standby replays a transaction."""
        self.table.replay()

    @precondition(lambda self: self._some(is_logged=True, is_reported=False))
    @rule(data=st.data(), is_of_table=st.booleans())
    def report(self, data: st.DataObject, *, is_of_table: bool) -> None:
        """The changes of a transaction are reported, by row or for the whole table."""
        reported = data.draw(st.sampled_from(self._some(is_logged=True, is_reported=False)))
        reported.is_reported, reported.reported_at = True, self.scenario.now
        for key in reported.keys:
            if self._version(key) >= reported.id:
                self.floor[key] = max(self.floor[key], reported.id)
        self.scenario.change(
            *([] if is_of_table else reported.keys), by=reported.id + self.ids.offset
        )

    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=3, unique=True))
    def look_up(self, keys: list[int]) -> None:
        """A lookup comes, and all due queries are sent."""
        self.look_up_keys(keys)

    def look_up_keys(self, keys: list[int]) -> None:
        """Submit a lookup, and send all due queries."""
        self.lookups += 1
        for position, key in enumerate(keys):
            self.floors[self.lookups, position] = self.floor[key]
        words = self.scenario.look_up(self.lookups, *keys, deadline=self.scenario.now + 2.0)
        self._check(Result({self.lookups: words}))
        while (order := self.scenario.send()) is not None:
            self.sent[order.batch] = order.keys

    @rule(key=st.sampled_from(KEYS), data=st.data())
    def fetch(self, key: int, data: st.DataObject) -> None:
        """A lookup comes, and all queries are sent, read and landed at once."""
        self.look_up_keys([key])
        for batch in sorted(self.sent):
            self._execute(batch, data)
        for batch in sorted(self.read):
            self._land(batch)

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def execute(self, data: st.DataObject) -> None:
        """A query reads the table."""
        self._execute(data.draw(st.sampled_from(sorted(self.sent))), data)

    def _execute(self, batch: int, data: st.DataObject) -> None:
        keys, of_standby = self.sent.pop(batch), data.draw(st.sampled_from(self.servers))
        rows = {key: str(self.table.version(key, of_standby=of_standby)) for key in keys}
        self.read[batch] = rows, self.table.snapshot(of_standby=of_standby)

    @precondition(lambda self: self.read)
    @rule(data=st.data())
    def land(self, data: st.DataObject) -> None:
        """A query returns its rows, early or late."""
        self._land(data.draw(st.sampled_from(sorted(self.read))))

    def _land(self, batch: int) -> None:
        rows, snapshot = self.read.pop(batch)
        self._check(self.scenario.land(batch, rows, snapshot=snapshot))

    @precondition(lambda self: len(self.table.log) > 2 * self.scenario.server.number + 3)  # rarely
    @rule(offset=st.sampled_from(FOREIGN_OFFSETS))
    def switch(self, offset: int) -> None:
        """Another server with the same rows and other ids answers from now on."""
        self.scenario.server = ServerEpoch(self.scenario.server.number + 1)
        self.scenario.state.on_server(self.scenario.server, self.scenario.now)
        self.ids = Ids(IdRelation.UNKNOWN, offset, HOLD_OFF_S)

    @rule(seconds=st.sampled_from([0.5, 1.5, 6.0, 12.0]))
    def wait(self, seconds: float) -> None:
        """Time passes; overdue queries are cancelled, and reported changes become visible."""
        self.scenario.now += seconds
        for of_standby in self.servers:
            while self._some_overdue(of_standby=of_standby):
                self.table.show_next(of_standby=of_standby)
        self._check(self.scenario.expire())

    @invariant()
    def nothing_stays_stale(self) -> None:
        """No cached row is older than a reported change of its key."""
        if self.scenario.state.statistics().cache.rows:
            answers = self.scenario.look_up(0, *KEYS, deadline=self.scenario.now)
            self._check(self.scenario.expire())
            for key, word in answers.items():
                assert int(word.removeprefix("hit ")) >= self.table.reported_version(key)

    def _some(self, **states: bool) -> list[Transaction]:
        return [
            each
            for each in self.table.transactions
            if all(getattr(each, name) is value for name, value in states.items())
        ]

    def _some_overdue(self, *, of_standby: bool) -> bool:
        latest = self.scenario.now - self.ids.visible_after_s
        return any(
            each.reported_at <= latest
            for each in self._some(is_reported=True)
            if not (each.is_replayed if of_standby else each.is_visible)
        )

    def _version(self, key: int) -> int:
        """The version that a new read finds at least."""
        return min(self.table.version(key, of_standby=each) for each in self.servers)

    def _check(self, result: Result) -> None:
        """No answer is older than the floor of its key when the lookup was submitted."""
        for lookup, words in result.answers.items():
            for position, word in words.items():
                label, _, version = word.partition(" ")
                is_failure = label in {"timeout", "error"}
                assert is_failure or int(version) >= self.floors[lookup, position]
        for batch in result.cancelled:
            self.sent.pop(batch, None)
            self.read.pop(batch, None)


@example_counts(quick=15, full=300)
def test_no_row_stays_stale(examples: int) -> None:
    """In any order of events no cached row is older than a reported change of its key."""
    run_model(FenceMachine, examples=examples, steps=50)
