"""The state of a dimension against the reference model, in random interleavings."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lookup_core.errors import ErrorCode
from lookup_core.lookup_options import LookupOptions
from lookup_core.protection.backend_guard import BackendGuard
from tests.lookup_core.dimension.naive_dimension import (
    IF_ERROR_S,
    MISSING_RETRIES,
    RETRIES,
    REVALIDATE_S,
    NaiveDimension,
    terms,
)
from tests.lookup_core.dimension.scenario import (
    FAULTY,
    Key,
    Name,
    Result,
    Scenario,
    Words,
    max_age,
    retrying,
    settings,
)
from tests.lookup_core.hypothesis_runs import example_counts, run_model

MAX_KEYS, MAX_IN_FLIGHT = 3, 2
SETTINGS = settings(
    max_keys=MAX_KEYS,
    max_in_flight=MAX_IN_FLIGHT,
    retries=RETRIES,
    missing_retries=MISSING_RETRIES,
    revalidate_s=REVALIDATE_S,
    if_error_s=IF_ERROR_S,
)
KEYS = range(5)
OPTIONS = (
    *(None, None, None),
    *(max_age(0.0), max_age(3.0), max_age(15.0)),
    *(retrying(0), retrying(1), retrying(2, 0.5), retrying(2, 0.5, retry_if="name")),
    LookupOptions(max_age_ms=1000, max_retries=1, retry_delay_ms=250),
)
CODES = (
    ErrorCode.BACKEND_UNAVAILABLE,
    ErrorCode.CONNECTION_LOST,
    ErrorCode.TIMEOUT,
    ErrorCode.FORBIDDEN,
    ErrorCode.KEY_REJECTED,
)


class DimensionMachine(RuleBasedStateMachine):
    """A table whose rows change, callers that come and go, and a backend of any speed."""

    def __init__(self) -> None:
        super().__init__()
        self.scenario = Scenario(SETTINGS)
        self.model = NaiveDimension(max_keys=MAX_KEYS, guard=BackendGuard(MAX_IN_FLIGHT))
        self.table: dict[int, int | None] = dict.fromkeys(KEYS)  # {key: version; None: no row}
        self.table |= dict.fromkeys(KEYS[:2], 0)
        self.versions = 0
        self.floor = dict.fromkeys(KEYS, 0)  # {key: the oldest version that is not outdated}
        self.lookups = 0
        self.open: dict[tuple[int, int], tuple[Key, int]] = {}  # {(lookup, position): (key, floor)}
        self.read_after: dict[int, float] = {}  # {lookup: rows that were read then are too old}
        self.read: dict[int, dict[int, str]] = {}  # {batch at the backend: the rows that it read}

    @rule(
        keys=st.lists(st.sampled_from([*KEYS, None, FAULTY]), max_size=5),
        patience=st.sampled_from([0.5, 2.0, 30.0]),
        is_sent=st.booleans(),
        options=st.sampled_from(OPTIONS),
    )
    def look_up(
        self, keys: list[Key], *, patience: float, is_sent: bool, options: LookupOptions | None
    ) -> None:
        """A lookup comes; in half of the cases all due queries are sent at once."""
        self.lookups += 1
        lookup, deadline = self.lookups, self.scenario.now + patience
        wanted = terms(options, deadline=deadline, now=self.now)
        self.read_after[lookup] = wanted.read_after
        for position, key in enumerate(keys):
            floor = self.floor[key] if isinstance(key, int) else 0
            self.open[lookup, position] = (key, floor)

        words = self.scenario.look_up(
            lookup, *keys, deadline=deadline, channel=lookup % 3, options=options
        )

        assert words == self.model.look_up(lookup, keys, wanted, self.now)
        self._check_answers(lookup, words)
        if is_sent:
            self._send_all()

    @precondition(lambda self: self.model.may_send(self.scenario.now))
    @rule()
    def send(self) -> None:
        """A query goes to the backend, which reads the table at this moment."""
        order = self.scenario.send()

        assert order is not None
        self.model.take(order, self.scenario.now)
        versions = {key: self.table[key] for key in order.keys}
        self.read[order.batch] = {
            key: f"{key}@{version}" if version % 3 else ""  # some rows have no name
            for key, version in versions.items()
            if version is not None
        }

    @precondition(lambda self: self.read)
    @rule(data=st.data())
    def land(self, data: st.DataObject) -> None:
        """A query ends, possibly long after its read."""
        batch = data.draw(st.sampled_from(sorted(self.read)))
        rows = self.read.pop(batch)
        names: dict[int, list[Name]] = {key: [name or None] for key, name in rows.items()}

        self._check(self.scenario.land(batch, names), self.model.land(batch, rows, self.now))

    @precondition(lambda self: self.read)
    @rule(data=st.data(), code=st.sampled_from(CODES))
    def fail(self, data: st.DataObject, code: ErrorCode) -> None:
        """A query fails."""
        batch = data.draw(st.sampled_from(sorted(self.read)))
        del self.read[batch]

        self._check(self.scenario.fail(batch, code), self.model.fail(batch, code, self.now))

    @precondition(lambda self: self._is_probe_due())
    @rule(error=st.sampled_from([None, None, ErrorCode.BACKEND_UNAVAILABLE]))
    def probe(self, error: ErrorCode | None) -> None:
        """The backend is probed."""
        for each in (self.scenario.state.guard, self.model.guard):
            assert each.start_probe_if_due(self.now)
            each.on_probe(error, now=self.now, jitter=0.5)

    @rule()
    def evict(self) -> None:
        """The cache loses its memory for a moment."""
        self.scenario.state.limit_cache(0.0)
        self.scenario.state.limit_cache(1.0)

        self.model.cache.clear()

    @precondition(lambda self: self.model.callers())
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        """A caller gives up, and gets no more answers."""
        lookup = data.draw(st.sampled_from(sorted(self.model.callers())))
        self.open = {at: key for at, key in self.open.items() if at[0] != lookup}

        self._check(self.scenario.leave(lookup), self.model.leave(lookup))

    @precondition(lambda self: self.lookups % 8 == 7)  # rarely: it ends all other lookups
    @rule(code=st.sampled_from([ErrorCode.SCHEMA_CHANGED, ErrorCode.TABLE_UNAVAILABLE]))
    def abandon(self, code: ErrorCode) -> None:
        """The schema is no longer valid."""
        self._check(self.scenario.abandon(code), self.model.abandon(code))

    @rule(key=st.sampled_from(KEYS), has_row=st.booleans(), is_flush=st.booleans())
    def change(self, key: int, *, has_row: bool, is_flush: bool) -> None:
        """A row changes and is invalidated; the insertion of a late row is not reported."""
        self.versions += 1
        is_late, self.table[key] = self.table[key] is None, self.versions if has_row else None
        if is_late and has_row:
            return
        self.floor[key] = self.versions

        changed = [] if is_flush else [key]
        assert self.scenario.invalidate(*changed) == self.model.invalidate(changed or KEYS)

    @rule(seconds=st.sampled_from([0.25, 0.5, 1.0, 4.0, 10.0]), is_sent=st.booleans())
    def wait(self, seconds: float, *, is_sent: bool) -> None:
        """Time passes, and retries may be due."""
        self.scenario.now += seconds

        self._check(self.scenario.expire(), self.model.expire(self.now))
        if is_sent:
            self._send_all()

    @invariant()
    def open_keys_wait(self) -> None:
        """Exactly the lookups with open keys wait."""
        assert {lookup for lookup, _ in self.open} == self.model.callers()
        assert self.scenario.statistics.waiting_keys == self.model.waiting_keys()

    @invariant()
    def nothing_is_sent_without_need(self) -> None:
        """Without a slot, or without keys that are due, no query is sent or awaited."""
        if not self.model.may_send(self.now):
            assert self.scenario.send() is None
            assert self.scenario.next_deadline == self.model.next_deadline()

    def teardown(self) -> None:
        """In the end every lookup has its answers, and nothing is left over."""
        self.scenario.now += 1000.0
        self._check(self.scenario.expire(), self.model.expire(self.now))

        assert self.open == {}
        self.scenario.now += 1.0  # the breaker may have opened just now
        if self._is_probe_due():
            self.probe(None)
        assert self.scenario.send() is None
        statistics = self.scenario.statistics
        assert (statistics.queued_keys, statistics.queries_in_flight) == (0, 0)
        assert self.scenario.next_deadline is None

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return self.scenario.now

    def _is_probe_due(self) -> bool:
        due_at = self.model.guard.breaker.probe_due_at()
        return due_at is not None and due_at <= self.now

    def _send_all(self) -> None:
        while self.model.may_send(self.now):
            self.send()

    def _check(self, result: Result, expected: Result) -> None:
        assert result.answers == expected.answers
        assert sorted(result.ended) == sorted(expected.ended)
        assert sorted(result.cancelled) == sorted(expected.cancelled)
        for batch in result.cancelled:
            self.read.pop(batch, None)
        for lookup, words in result.answers.items():
            self._check_answers(lookup, words)

    def _check_answers(self, lookup: int, words: Words) -> None:
        """Each position is answered once, with its own key's row, not older than allowed."""
        for position, word in words.items():
            key, floor = self.open.pop((lookup, position))
            age_s = self.model.ages.get((lookup, position), 0.0)
            assert self.scenario.ages[lookup, position] == age_s
            label, _, name = word.partition(" ")
            if (lookup, position) in self.model.ages:
                assert self.now - age_s >= self.read_after[lookup]
            if name and label in {"hit", "fetched", "stale"}:
                assert name.startswith(f"{key}@")
                assert int(name.partition("@")[2]) >= floor


@example_counts(quick=15, full=300)
def test_state_agrees_with_the_model(examples: int) -> None:
    """In any order of events no answer is older than the changes reported before it."""
    run_model(DimensionMachine, examples=examples, steps=50)
