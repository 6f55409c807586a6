"""Lookups in a shared cache: the answers of the service, or none."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pytest

from lookup_core.answer import Answer, Outcome
from lookup_core.cache.cache_view import CacheReader, EntryReader
from lookup_core.cache.cached_answers import CachedAnswers, CacheDescription, CachedLookup
from lookup_core.cache.entry_states import Lifetimes
from lookup_core.cache.row_cache import RowCache
from lookup_core.dimension.default_row import default_row
from lookup_core.dimension.dimension_events import ChannelId, LookupId, LookupRequest
from lookup_core.dimension.local_resolver import LocalResolver
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.keys.typed_keys import KeyCasts, named_key
from lookup_core.lookup_options import LookupOptions
from lookup_core.settings import CacheMode, CacheSettings, DimensionSettings
from lookup_core.table.full_table import FullTable
from tests.lookup_core.table.full_tables import ReadMemory

TTL_S, NEGATIVE_TTL_S = 100.0, 20.0
SEED = 7
OPTIONS = LookupOptions()
COLUMNS = pa.schema({"name": pa.utf8(), "tier": pa.int32()})
NUMBERS = DimensionSchema(pa.schema({"id": pa.int64()}), COLUMNS)
TEXTS = DimensionSchema(pa.schema({"code": pa.utf8()}), COLUMNS)
PAIRS = DimensionSchema(pa.schema({"code": pa.utf8(), "day": pa.date32()}), COLUMNS)


@dataclass(slots=True)
class Cached:
    """A dimension whose cache has entries of several ages, and readers of it."""

    schema: DimensionSchema
    settings: DimensionSettings
    memory: ReadMemory = field(default_factory=ReadMemory)
    resolver: LocalResolver = field(init=False)

    def __post_init__(self) -> None:
        default = None
        if self.settings.default is not None:
            default = default_row(self.settings.default, self.schema.columns)
        self.resolver = LocalResolver(
            self.settings, self.schema, seed=SEED, default=default, memory=self.memory
        )

    def fill(self, keys: Sequence[object], rows: Sequence[object], *, now: float) -> None:
        """Cache rows of keys; None is a key without a row."""
        has_row = np.array([row is not None for row in rows])
        columns = self.schema.columns
        kept = [
            dict(zip(columns.names, row, strict=True)) for row in rows if isinstance(row, tuple)
        ]
        self.row_cache.fill(
            self.resolver.canonical(self.batch(keys)),
            has_row,
            rows=pa.RecordBatch.from_pylist(kept, schema=columns),
            read_at=now,
            now=now,
            settles_later=False,
        )

    @property
    def row_cache(self) -> RowCache:
        """The cache of the resolver."""
        assert isinstance(self.resolver.cache, RowCache)
        return self.resolver.cache

    def batch(self, keys: Sequence[object]) -> pa.RecordBatch:
        """The key columns of these keys."""
        return batch_of(keys, self.schema.key)

    @property
    def description(self) -> CacheDescription:
        """What readers know of it, by way of its file."""
        default = self.settings.default
        row = None if default is None else default_row(default, self.schema.columns)
        description = CacheDescription(self.schema, SEED, self.settings.cache, row)
        return CacheDescription.decoded(description.encoded())

    def reader(self) -> EntryReader:
        """A reader of it."""
        assert self.memory.view is not None
        lifetimes = Lifetimes(self.description.settings)
        return CacheReader(self.memory.view, lifetimes, self.memory.fence)

    def answers(
        self,
        keys: pa.RecordBatch,
        columns: Sequence[str],
        options: LookupOptions = OPTIONS,
        *,
        now: float,
    ) -> CachedAnswers:
        """The answers of a reader."""
        key = named_key(keys.schema, self.schema)
        lookup = CachedLookup(self.description, key=key, columns=columns, options=options)
        return lookup.answers(self.reader(), keys, now)

    def own_answers(
        self,
        keys: pa.RecordBatch,
        columns: Sequence[str],
        options: LookupOptions = OPTIONS,
        *,
        now: float,
    ) -> dict[int, object]:
        """The answers that the service has at once, but for stale rows and errors."""
        typed = KeyCasts(keys.schema, self.schema).typed_keys(keys)
        request = LookupRequest(
            LookupId(1), ChannelId(1), typed, tuple(columns), now + 1.0, options=options
        )
        found = self.resolver.look_up(request, now, is_backend_down=False).answers
        left = {Outcome.STALE, Outcome.ERROR}
        return {at: each for at, each in by_position(found).items() if each[0] not in left}


def batch_of(keys: Sequence[object], schema: pa.Schema) -> pa.RecordBatch:
    """The columns of these keys: values, or tuples of them."""
    tuples = [key if isinstance(key, tuple) else (key,) for key in keys]
    return pa.RecordBatch.from_pylist(
        [dict(zip(schema.names, each, strict=True)) for each in tuples], schema=schema
    )


def by_position(answers: Sequence[Answer]) -> dict[int, tuple[Outcome, int, object]]:
    """{position: outcome, age and row} of answers; each position has one."""
    found: dict[int, tuple[Outcome, int, object]] = {}
    for answer in answers:
        rows = [None] * answer.size if answer.rows is None else answer.rows.to_pylist()
        assert len(rows) == answer.size
        for at, position in enumerate(answer.positions.tolist()):
            assert position not in found
            found[position] = (Outcome(answer.outcomes[at]), int(answer.ages_ms[at]), rows[at])
    return found


def settings_of(*, stale_s: float = 0.0, **options: object) -> DimensionSettings:
    """Settings of a dimension."""
    cache = CacheSettings(
        ttl_s=TTL_S,
        negative_ttl_s=NEGATIVE_TTL_S,
        ttl_jitter=0.3,
        stale_while_revalidate_s=stale_s,
    )
    return DimensionSettings("customers", cache=cache, **options)  # type: ignore[arg-type]


ROWS = [("Ann", 1), ("Bob", None), None, (None, 3), None, ("Cyd", 4)]
KEYS: Mapping[str, tuple[DimensionSchema, Sequence[object]]] = {
    "number": (NUMBERS, [1, 2, 3, 4, 5, 6]),
    "text": (TEXTS, ["a", "b", "", "a|b", "é", "6"]),
    "composite": (PAIRS, [("a", 1), ("a", 2), ("b", 1), ("b", 2), ("", 0), ("c", 9)]),
}


def filled(name: str, settings: DimensionSettings) -> Cached:
    """Entries that were read at 45 s, and one at 60 s."""
    schema, keys = KEYS[name]
    cached = Cached(schema, settings)
    cached.fill(keys[:5], ROWS[:5], now=45.0)
    cached.fill(keys[5:], ROWS[5:], now=60.0)
    return cached


@pytest.mark.parametrize("columns", [("tier", "name"), ()], ids=str)
@pytest.mark.parametrize(
    "options",
    [
        OPTIONS,
        LookupOptions(max_age_ms=0),
        LookupOptions(max_age_ms=15_000),
        LookupOptions(max_retries=2, retry_delay_ms=50),
        LookupOptions(max_retries=0, retry_delay_ms=50),
        LookupOptions(max_retries=2, retry_delay_ms=50, retry_if="name"),
        LookupOptions(max_retries=2, retry_delay_ms=50, retry_if="tier", max_age_ms=70_000),
    ],
    ids=lambda options: ",".join(options.names) or "no options",
)
@pytest.mark.parametrize("default", [None, {"name": "nobody"}], ids=["no default", "default"])
@pytest.mark.parametrize("name", KEYS)
def test_answers_are_those_of_the_service(
    name: str,
    default: Mapping[str, object] | None,
    options: LookupOptions,
    columns: Sequence[str],
) -> None:
    """A reader answers what the service answers at once, and leaves stale rows and errors to it."""
    cached = filled(name, settings_of(default=default, stale_s=50.0))
    _, keys = KEYS[name]
    others: dict[str, list[object]] = {
        "number": [None, 99],
        "text": [None, "z"],
        "composite": [("a", None), ("z", 5)],
    }
    wanted = cached.batch([*keys, *others[name], *reversed(keys)])

    for now in (60.0, 61.0, 64.0, 66.0, 116.0, 131.0, 150.0, 1_000.0):
        found = cached.answers(wanted, columns, options, now=now)
        expected = cached.own_answers(wanted, columns, options, now=now)
        answered = by_position(found.answers)
        assert answered == expected
        assert found.size == len(answered)
        assert sorted(answered) == np.flatnonzero(~found.is_open(wanted.num_rows)).tolist()


def test_invalid_keys_are_left_to_the_service() -> None:
    """A key that the dimension's type cannot represent is not looked up here."""
    cached = filled("text", settings_of())
    wanted = cached.batch(["a\0", "a", None])

    found = cached.answers(wanted, ["name"], now=60.0)

    assert by_position(found.answers) == {
        1: (Outcome.HIT, 15_000, {"name": "Ann"}),
        2: (Outcome.MISSING, 0, None),
    }
    assert found.is_open(3).tolist() == [True, False, False]


def test_rows_with_few_visits_are_reported() -> None:
    """The slots of answered rows are reported until the cache has counted three visits."""
    cached = filled("number", settings_of())
    keys = cached.batch([1, 3])
    reported = []

    for _ in range(5):
        found = cached.answers(keys, ["name"], now=61.0)
        cached.row_cache.visit(found.visited)
        reported.append(len(found.visited))

    assert reported == [1, 1, 1, 0, 0]


def test_full_tables_are_answered() -> None:
    """A reader of a full table answers absent keys as missing, as old as the table."""
    settings = DimensionSettings("customers", cache=CacheSettings(mode=CacheMode.FULL))
    cached = Cached(NUMBERS, settings)
    table = cached.resolver.cache
    assert isinstance(table, FullTable)
    reload = table.begin_reload(10.0)
    rows = pa.RecordBatch.from_pylist([{"name": "Ann", "tier": 1}], schema=COLUMNS)
    reload.add(cached.resolver.canonical(cached.batch([1])), rows, np.ones(1, np.bool_))
    table.finish_reload(reload, unseen=np.zeros(0, np.uint64))
    table.confirm(11.0)
    lookup = CachedLookup(
        cached.description,
        key=NUMBERS.key,
        columns=["name"],
        options=LookupOptions(max_age_ms=4_000),
    )

    found = [
        lookup.answers(cached.memory.reader(), cached.batch([2, 1]), now)
        for now in (10.5, 13.0, 20.0)
    ]

    assert [by_position(each.answers) for each in found] == [
        {0: (Outcome.MISSING, 0, None), 1: (Outcome.HIT, 0, {"name": "Ann"})},
        {0: (Outcome.MISSING, 2_000, None), 1: (Outcome.HIT, 2_000, {"name": "Ann"})},
        {},
    ]


@pytest.mark.parametrize("default", [None, {"name": "nobody", "tier": 3}])
@pytest.mark.parametrize("name", KEYS)
def test_description_survives_its_file(name: str, default: Mapping[str, object] | None) -> None:
    """The description that is read from its file is that of the cache."""
    schema, _ = KEYS[name]
    row = None if default is None else default_row(default, schema.columns)
    cache = CacheSettings(CacheMode.FULL, ttl_s=1.5, negative_ttl_s=0.25, ttl_jitter=0.5)
    description = CacheDescription(schema, 2**62, cache, row)

    assert CacheDescription.decoded(description.encoded()) == description


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"key": 1}', b"\xff"])
def test_other_descriptions_are_refused(content: bytes) -> None:
    """A file with another content raises ValueError."""
    with pytest.raises(ValueError, match=r"description|decode|Expecting"):
        CacheDescription.decoded(content)


@pytest.mark.parametrize(
    ("name", "keys", "takes"),
    [
        ("number", range(300), True),
        ("number", [*range(250), *range(50)], True),
        ("number", [*range(150)] * 2, False),
        ("number", [], True),
        ("number", [7] * 100, True),  # few keys
        ("text", [str(number) for number in range(300)], False),
        ("text", [str(number) for number in range(100)], False),
    ],
)
def test_distinct_numbers_are_taken_as_they_are(
    name: str, keys: Sequence[object], *, takes: bool
) -> None:
    """Numbers that hardly repeat are cheaper to answer than to make distinct."""
    cached = filled(name, settings_of())
    lookup = CachedLookup(
        cached.description, key=cached.schema.key, columns=["name"], options=OPTIONS
    )

    assert lookup.takes_repeated(cached.batch(keys)) is takes
