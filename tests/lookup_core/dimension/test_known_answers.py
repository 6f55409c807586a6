"""What is answered without the store, and what of it is kept."""

import numpy as np
import pyarrow as pa
import pytest

from lookup_core.dimension.batcher import ChannelId
from lookup_core.dimension.dimension_events import LookupRequest
from lookup_core.dimension.flight_table import FlightTable, LookupId
from lookup_core.dimension.local_resolver import LocalAnswers, LocalResolver
from lookup_core.dimension.query_results import QueryResult
from lookup_core.dimension.query_table import QueryTable
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.settings import CacheMode
from tests.lookup_core.dimension.dimension_script import SCHEMA, Key, settings, told, typed
from tests.lookup_core.dimension.key_runs import run_of


def local_resolver(*, mode: CacheMode = CacheMode.PARTIAL) -> LocalResolver:
    """Rows may be served for 2 s beyond their 10 s, and for 6 s if the store is away."""
    chosen = settings(mode=mode, stale_while_revalidate_s=2.0, stale_if_error_s=6.0)
    return LocalResolver(chosen, SCHEMA, seed=0)


def keep(known: LocalResolver, *keys: int, may_keep: bool = True, age_ms: int = 0) -> None:
    """A query has brought a row for each key, at 0 s."""
    flights = FlightTable()
    query = QueryTable(flights).start([run_of(flights, *keys)], 0.0)
    rows = pa.record_batch([pa.array([f"row {key}" for key in keys])], SCHEMA.columns)
    landing = QueryResult.of_rows(
        len(keys), np.arange(len(keys), dtype=np.int32), rows=rows, age_ms=age_ms
    )
    keeps = np.full(len(keys), may_keep)
    known.keep(query, landing, may_keep=keeps, is_last_try=True, now=0.0)


def look_up(
    known: LocalResolver, *keys: Key, now: float = 1.0, is_down: bool = False
) -> LocalAnswers:
    """A lookup."""
    request = LookupRequest(LookupId(1), ChannelId(0), typed(*keys), ("name",), 100.0)
    return known.look_up(request, now, is_store_down=is_down)


def test_unknown_keys_keep_their_positions() -> None:
    """What is known is answered; what is left are keys at their positions in the lookup."""
    known = local_resolver()
    keep(known, 7)

    found = look_up(known, 8, None, 7, 9)

    assert told(found.answers) == {1: "missing", 2: "hit row 7"}
    assert found.unknown.positions.tolist() == [0, 3]
    assert found.unknown.keys.size == 2
    assert found.outdated.positions.size == 0


def test_outdated_keys_are_told() -> None:
    """Just beyond its time a row is an answer, and read anew; later only if the store is away."""
    known = local_resolver()
    keep(known, 7)

    just_beyond, later = look_up(known, 7, now=11.0), look_up(known, 7, now=13.0, is_down=True)

    assert told(just_beyond.answers) == told(later.answers) == {0: "stale row 7"}
    assert just_beyond.outdated.positions.tolist() == [0]
    assert later.outdated.positions.size == 0
    assert look_up(known, 7, now=13.0).unknown.positions.tolist() == [0]


def test_rows_are_as_old_as_their_store_says() -> None:
    """What a store held before it was asked expires as though it had been kept here."""
    known = local_resolver()
    keep(known, 7, age_ms=4_000)
    keep(known, 8)

    assert told(look_up(known, 7, 8, now=5.0).answers) == {0: "hit row 7", 1: "hit row 8"}
    assert told(look_up(known, 7, 8, now=7.0).answers) == {0: "stale row 7", 1: "hit row 8"}


@pytest.mark.parametrize("mode", CacheMode)
def test_overtaken_rows_are_not_kept(mode: CacheMode) -> None:
    """What an invalidation has overtaken is not kept; in other modes nothing is by a lookup."""
    known = local_resolver(mode=mode)
    keep(known, 7, may_keep=False)
    keep(known, 8)

    assert look_up(known, 7).unknown.positions.size == 1
    assert look_up(known, 8).unknown.positions.size == (mode is not CacheMode.PARTIAL)


def test_refused_key_is_known_for_a_while() -> None:
    """A single key that the store refuses is answered so from now on; of several none is blamed."""
    known = local_resolver()
    canonical = known.canonical(typed(7).columns, np.zeros(1, np.int32))

    assert known.condemn(canonical.ids(), 0.0) is ErrorCode.KEY_REJECTED
    assert known.condemn([8, 9], 0.0) is ErrorCode.BACKEND_REJECTED

    assert known.refused_until(canonical.ids()[0], 1.0) == 30.0
    assert told(look_up(known, 8, 7).answers) == {1: "error key_rejected"}
    assert look_up(known, 8, 9).unknown.positions.tolist() == [0, 1]


def test_forgotten_keys_are_unknown() -> None:
    """Keys or all are forgotten, and it is told how many rows went."""
    known = local_resolver()
    keep(known, 7, 8, 9)

    hashes, count = known.forget(typed(7, 5, None))

    assert hashes is not None
    assert (len(hashes), count) == (2, 1)
    assert known.forget(None) == (None, 2)


def test_default_row_must_fit() -> None:
    """A default row with a column that there is not is refused."""
    with pytest.raises(BackendError) as caught:
        LocalResolver(settings(default={"naem": "x"}), SCHEMA, seed=0)

    assert caught.value.code is ErrorCode.TABLE_UNAVAILABLE
    assert "did you mean name?" in caught.value.detail


def test_only_plain_hits_are_told_alone() -> None:
    """A fresh row is told by its key's value; all else needs a closer look."""
    known = local_resolver()
    keep(known, 7)

    hit = known.hit(7, 1.0)

    assert hit is not None
    assert (hit.row.columns[-1][hit.row.at].as_py(), hit.age_s) == ("row 7", 1.0)
    assert [known.hit(7, 11.0), known.hit(8, 1.0), known.hit("7", 1.0)] == [None] * 3


def test_stale_rows_stand_in_for_a_failure() -> None:
    """Where each key has a row that is not too old, nobody is told of the failure."""
    known = local_resolver()
    keep(known, 7, 8)
    key_ids = known.canonical(typed(8, 7).columns, np.arange(2, dtype=np.int32)).ids()

    places = np.array([3, 5], np.int32)
    answers = known.failed(
        key_ids, places, columns=["name"], code=ErrorCode.BACKEND_UNAVAILABLE, now=14.0
    )

    assert told([*answers]) == {3: "stale row 8", 5: "stale row 7"}
