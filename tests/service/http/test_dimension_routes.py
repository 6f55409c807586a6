"""Routes of dimensions, status, invalidation and reload, and the status page."""

import re
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from lookup_core.errors import BackendError, ErrorCode
from lookup_core.freshness.feed_health import FeedState
from lookup_core.protocol.channel_registry import EndedStream
from lookup_core.sources.splits import SplitProgress, SplitState
from lookup_core.statistics import (
    AuditResult,
    DistrustStatistics,
    FeedStatistics,
    LoadResult,
    LoadStatistics,
    RefreshStatistics,
    UnusedMessage,
)
from service.engine.recent_errors import RecentErrors
from service.http import status_page
from service.http.replies.models import Freshness
from service.http.routes.status import ProcessStatistics, recent_errors
from service.http.status_history import StatusHistory
from tests.service.engine.running import until
from tests.service.http.serving import (
    ARROW_TYPE,
    ONE,
    Reply,
    Served,
    Setting,
    away,
    followed_customers,
    served,
    until_started,
    with_parts,
)
from tests.service.observability.sidecar_statistics import CHANNEL as BUSY_CHANNEL

WHOLE = Setting(sources={"customers": followed_customers()})
CHANNEL = replace(BUSY_CHANNEL, channel=2, dimension="customers", watermark_ms=None, is_idle=True)


# Dimensions


async def test_dimension_shows_schema_and_figures() -> None:
    """A dimension has its exact types, settings, and figures as the engine counts them."""
    async with served() as service:
        await service.lookup('{"keys": [1, 1, 9]}')
        names = (await service.get("/v1/dimensions")).json
        customers = (await service.get(ONE)).json
        weather = (await service.get("/v1/dimensions/weather")).json

    assert names == {"dimensions": ["customers", "weather"]}
    assert [(field["name"], field["type"]) for field in weather["key"]] == [
        ("origin", "string"),
        ("hour", "timestamp[us, tz=UTC]"),
    ]
    assert weather["columns"] == [{"name": "temperature", "type": "double", "nullable": True}]
    assert (customers["unavailable"], customers["coalesced_keys"]) == (None, 1)
    assert {name: count for name, count in customers["lookups"].items() if count} == {
        "fetched": 2,
        "missing": 1,
    }
    assert (customers["cache"]["mode"], customers["cache"]["rows"]) == ("partial", 2)
    assert (customers["backend"]["queries"], customers["backend"]["batch_keys"]) == (1, 2)
    assert customers["freshness"]["staleness_s"] >= 0


@pytest.mark.parametrize(("setting", "codes"), [(Setting(), ["no_index"]), (WHOLE, [])])
async def test_missing_index_is_information(setting: Setting, codes: list[str]) -> None:
    """Without an index the dimension is available, with a reason; a full table needs none."""
    async with served(setting) as service:
        await until_started(service)
        service.customers.uses_index = False
        shown = (await service.get(ONE)).json

    assert [(each["code"], each["severity"]) for each in shown["health"]] == [
        (code, "info") for code in codes
    ]
    assert shown["backend"]["uses_index"] is False


@pytest.mark.parametrize("name", ["customer", "%00", "..%2F..%2Fetc", "a" * 5000])
async def test_unknown_dimension_names_the_known(service: Served, name: str) -> None:
    """An unknown name gets a bounded error with the configured names."""
    reply = await service.get(f"/v1/dimensions/{name}")

    assert reply.problem == (404, "unknown_dimension")
    assert reply.json["detail"].endswith(" configured: customers, weather")
    assert ("did you mean customers?" in reply.json["detail"]) == (name == "customer")
    assert len(reply.json["detail"]) < 200


PARTITION = SplitProgress(
    "flights-0", SplitState.WAITING, position=7, total=10, failures_total=2, watermark_ms=5_250
)
SHOWN_PARTITION = {
    "id": "flights-0",
    "state": "waiting",
    "position": 7,
    "total": 10,
    "failures": 2,
    "watermark_ms": 5_250,
    "last_error": None,
    **dict.fromkeys(("is_caught_up", "is_idle", "is_paused"), False),
}
FEED = FeedStatistics(
    *(FeedState.LIVE, 5_000, (PARTITION,), "there is no such topic"),
    {UnusedMessage.IGNORED: 4, UnusedMessage.UNDECODABLE: 1},
    is_audited=True,
    audited_keys=dict(zip(AuditResult, (9, 1, 0, 2), strict=True)),
    distrust=DistrustStatistics(found_ago_s=90.5, least_s=209.5, agreed=7, needed=20),
    are_values_refused=True,
    doubt="events of others are ignored",
)
SHOWN_FEED = {
    "state": "live",
    "watermark_ms": 5_000,
    "last_error": "there is no such topic",
    "unused_messages": {"ignored": 4, "undecodable": 1},
    "is_audited": True,
    "audited_keys": {"agreed": 9, "suspect": 1, "contradicted": 0, "failed": 2},
    "distrust": {"found_ago_s": 90.5, "least_s": 209.5, "agreed": 7, "needed": 20},
    "are_values_refused": True,
    "doubt": "events of others are ignored",
    "splits": [SHOWN_PARTITION],
}
LOAD = LoadStatistics(
    is_loading=True, rows=4, held_rows=3, expected_rows=9, last_error="full", splits=(PARTITION,)
)
SHOWN_LOAD = {
    "is_whole": False,
    "is_loading": True,
    "rows": 4,
    "held_rows": 3,
    "expected_rows": 9,
    "last_seconds": None,
    "last_error": "full",
    "splits": [SHOWN_PARTITION],
    "counts": {"ok": 0, "error": 0, "outdated": 0},
}
STARTING = FeedStatistics(FeedState.STARTING, splits=(SplitProgress("a", SplitState.UNASSIGNED),))


def test_freshness_shows_feed_and_load() -> None:
    """Feed and load are shown with each split; null where there is none, or no watermark."""
    whole, none, starting = (
        Freshness.model_validate(each).model_dump(mode="json")
        for each in (
            RefreshStatistics(None, FEED, LOAD),
            RefreshStatistics(1.5),
            RefreshStatistics(feed=STARTING),
        )
    )

    assert whole == {"staleness_s": None, "feed": SHOWN_FEED, "load": SHOWN_LOAD}
    assert none == {"staleness_s": 1.5, "feed": None, "load": None}
    assert [starting["feed"]["watermark_ms"], starting["feed"]["splits"][0]["watermark_ms"]] == [
        *(None, None),
    ]


def test_recent_errors_have_ages() -> None:
    """Moments are shown as ages, because a reader has another clock."""
    moments = iter([100.0, 107.0, 110.0])  # two failures, and a reader
    errors = RecentErrors(lambda: next(moments))
    for _ in range(2):
        errors.on_query_failed(BackendError(ErrorCode.TIMEOUT, "customers: too slow"))

    assert [each.model_dump() for each in recent_errors(errors)] == [
        {
            "code": "timeout",
            "detail": "customers: too slow",
            "queries": 2,
            "keys": 0,
            "first_ago_s": 10.0,
            "last_ago_s": 3.0,
        }
    ]


# Status

ENDED = EndedStream("weather", "stage 3", channels=2, keys=7, watermark_ms=None, ended_ago_s=4.0)


async def test_history_has_the_totals_of_each_sample() -> None:
    """Samples of the last ten minutes have their age and the totals of each dimension."""
    now_s = [0.0]
    async with served() as service:
        history = StatusHistory(service.parts.dimensions, clock=lambda: now_s[0])
        history.sample()
        await service.lookup('{"keys": [1, 9]}')
        now_s[0] = 5.0
        history.sample()
        now_s[0] = 7.0
        shown = history.reply().model_dump()
        for _ in range(200):
            history.sample()

    customers = shown["dimensions"][0]
    assert (shown["ages_s"], customers["name"]) == ([7.0, 2.0], "customers")
    assert (customers["lookups"]["fetched"], customers["lookups"]["missing"]) == ([0, 1], [0, 1])
    assert (customers["queries"], customers["batch_keys"]) == ([0, 1], [0, 2])
    assert len(history.reply().ages_s) == 121


async def test_status_shows_everything_at_once() -> None:
    """One answer has dimensions and channels as their own routes, errors without keys."""
    setting = with_parts(channels=lambda: [CHANNEL], ended_streams=lambda: [ENDED])
    async with served(setting) as service:
        await service.lookup('{"keys": [1, 9]}')
        login = BackendError(ErrorCode.BACKEND_AUTH, "customers: no login")
        service.customers.fail_next(9, login)
        await service.lookup('{"keys": [424242], "timeout_ms": 100}')
        reply = await service.get("/v1/status")
        single = (await service.get(ONE)).json
        channels = (await service.get("/v1/channels")).json

    status = reply.json
    assert [each["name"] for each in status["dimensions"]] == ["customers", "weather"]
    shown, moving = status["dimensions"][0], {"freshness": 0, "recent_errors": 0}
    assert shown | moving == single | moving
    assert (status["version"], status["is_draining"], status["not_ready"]) == ("1.2.3", False, {})
    assert status["channels"] == channels["channels"] == [asdict(CHANNEL)]
    assert status["ended_streams"] == channels["ended_streams"] == [asdict(ENDED)]
    details = {error["code"]: error["detail"] for error in shown["recent_errors"]}
    assert details["backend_auth"] == "customers: no login"
    assert b"424242" not in reply.body


async def test_undescribed_dimension_shows_why() -> None:
    """Without a schema a dimension has the reason and zeros, and is not ready, even in a drain."""
    async with served(away(ErrorCode.TABLE_UNAVAILABLE)) as service:
        service.parts.readiness.start_draining()
        shown = (await service.get(ONE)).json
        status = (await service.get("/v1/status")).json
        channels = (await service.get("/v1/channels")).json

    why = {"code": "table_unavailable", "detail": "customers: the reason"}
    assert (shown["key"], shown["columns"], set(shown["lookups"].values())) == (None, None, {0})
    assert (shown["unavailable"], status["not_ready"]) == (why, {"customers": why["detail"]})
    assert (status["is_draining"], channels) == (True, {"channels": [], "ended_streams": []})


@pytest.mark.parametrize(("resident_bytes", "shown"), [(300, 300), (0, None)])
async def test_status_shows_the_process(resident_bytes: int, shown: int | None) -> None:
    """Uptime counts from the start; memory is null before it is known."""
    process = ProcessStatistics(
        *(1_000, lambda: resident_bytes, lambda: 0.25), clock=lambda: 12.5, started_at=10.0
    )
    async with served(with_parts(process=process)) as service:
        status = (await service.get("/v1/status")).json

    assert (status["uptime_s"], status["event_loop_lag_s"]) == (2.5, 0.25)
    assert status["memory"] == {"resident_bytes": shown, "limit_bytes": 1_000}


# Invalidation and reload


async def reload(service: Served, body: bytes | None = None) -> Reply:
    """Request a reload of `customers`."""
    return await service.get(f"{ONE}/reload", method="POST", data=body)


@pytest.mark.parametrize(
    ("body", "dropped", "later"),
    [('{"keys": [1, 9]}', 1, ["fetched", "hit"]), ('{"all": true}', 2, ["fetched", "fetched"])],
)
async def test_invalidated_keys_are_fetched_again(
    service: Served, body: str, dropped: int, later: list[str]
) -> None:
    """An invalidation drops the named keys, or all; it returns how many entries it dropped."""
    await service.lookup('{"keys": [1, 2]}')

    reply = await service.post("invalidate", body)

    assert (reply.status, reply.json) == (200, {"invalidated": dropped})
    assert (await service.lookup('{"keys": [1, 2]}')).json["outcomes"] == later


async def test_unclear_invalidation_is_refused(service: Served) -> None:
    """A key of another type, a body without keys, and an Arrow body drop nothing."""
    wrong = await service.post("invalidate", '{"keys": [1, "2"]}')
    empty = await service.post("invalidate", "{}")
    arrow = await service.post("invalidate", b"", **ARROW_TYPE)

    assert (wrong.problem, wrong.json["detail"]) == (
        (422, "key_type"),
        "keys.1 is not valid (type); a key is id int64",
    )
    assert empty.problem == (422, "bad_request")
    assert arrow.problem == (415, "unsupported_media_type")


async def test_reload_is_accepted_at_once() -> None:
    """A reload is accepted without reading a body, and counts when the table was loaded again."""
    async with served(Setting(sources={"customers": followed_customers()})) as service:
        await until_started(service)
        fresh = (await service.get(ONE)).json["freshness"]
        replies = [await reload(service, body) for body in (None, b"[" * 1000)]

        def loads() -> int:
            load = service.dimension.load_statistics()
            return 0 if load is None else load.counts[LoadResult.OK]

        await until(lambda: loads() >= 2)

    assert [(each.status, each.json) for each in replies] == [(202, {"reload": "requested"})] * 2
    assert (fresh["feed"]["state"], fresh["load"]["is_whole"], fresh["load"]["rows"]) == (
        "live",
        True,
        3,
    )


async def test_reload_needs_full_mode_and_a_schema() -> None:
    """Without full mode a reload is refused, without a description it may be retried."""
    async with served() as service:
        await service.described()
        partial = await reload(service)
    async with served(replace(WHOLE, prepare=away().prepare)) as service:
        undescribed = await reload(service)

    assert partial.problem == (422, "bad_request")
    assert "cache.mode: full" in partial.json["detail"]
    assert undescribed.problem == (503, "backend_unavailable")


# The status page

FOLDER = Path(status_page.__file__).parent / "page"
SCRIPTS = {path.name: path.read_text() for path in FOLDER.glob("*.js")}


async def test_page_is_one_document(service: Served) -> None:
    """Every script and style of the folder is in the page, and nothing of another host."""
    page = (await service.get("/", over="tcp")).body.decode()

    files = [path for path in FOLDER.iterdir() if path.suffix in {".js", ".css"}]
    assert len(files) > 2
    assert [path.name for path in files if path.read_text() not in page] == []
    assert re.findall(r"""(?:src|href)\s*=\s*["']?(?:https?:)?//""", page) == []
    assert "/*script*/" not in page


async def test_policy_allows_own_script_only(service: Served) -> None:
    """Script and style have a nonce that the policy names; all else is forbidden."""
    first, second = [await service.get("/", over="tcp") for _ in range(2)]

    policy = second.headers["Content-Security-Policy"]
    (nonce,) = set(re.findall(r'nonce="([^"]+)"', second.body.decode()))
    assert second.headers["Content-Type"].startswith("text/html")
    assert policy.count(f"'nonce-{nonce}'") == 2
    assert policy.startswith("default-src 'none';")
    assert ("connect-src 'self'" in policy, "unsafe" in policy) == (True, False)
    assert first.body != second.body


def test_page_parses_no_text() -> None:
    """Names and messages become text nodes: no script of the page parses HTML or code."""
    parsers = ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("]
    parsers += ["Function("]

    assert [each for each in parsers if any(each in text for text in SCRIPTS.values())] == []


def test_explained_terms_are_on_the_page() -> None:
    """Every term that the page explains is one that it shows."""
    html = (FOLDER / "page.html").read_text()
    explained = re.findall(r"<dt>([^<]+)</dt>", html)
    shown = "".join(SCRIPTS.values())

    assert len(explained) > 10
    assert [term for term in explained if term not in shown] == []
