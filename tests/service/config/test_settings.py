"""Documents without faults, and the settings that they become."""

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from lookup_core.settings import (
    AuditSettings,
    BatchSettings,
    CacheMode,
    CacheSettings,
    DimensionSettings,
    FeedSettings,
    FullSettings,
    Match,
    OnMissingSettings,
    ReloadSettings,
    RetrySettings,
    WhileLoading,
)
from service.config.dimension import Versions
from service.config.refresh import Notifications, Refresh, Security
from service.config.section import Section
from service.config.settings import Settings
from service.config.source import ParquetSource, PostgresSource
from tests.service.config.configuration import (
    AIRPORTS,
    CHANGELOG,
    CUSTOMERS,
    MINIMAL,
    POSTGRES,
    dimension,
    parsed,
    table,
)


def test_defaults_are_those_of_the_manual() -> None:
    """Only the dimensions have to be written; the environment is not read."""
    settings = Settings(MINIMAL)

    assert settings.model_fields_set == {"dimensions"}
    assert settings.model_dump(mode="json", exclude={"dimensions"}) == parsed("""
        auth: {token_file: null, admin_token_file: null}
        listen: {unix: /run/sidelook/sidelook.sock, http: null, tls: null, health: "0.0.0.0:8816"}
        limits: {memory_bytes: 536870912, connections: 256, database_connections: 4,
                 channels: 1024, request_keys: 100000, request_bytes: 33554432,
                 row_bytes: 8388608}
        tracing: {endpoint: null, sample_ratio: 0.01, service_name: sidelook,
                  headers_file: null, ca_file: null}
        allow_inline_secrets: false
    """)


def test_dimension_has_the_engine_s_defaults() -> None:
    """Only the jitter of the cache differs from the engine; columns keep their order."""
    expected = DimensionSettings(name="airports", cache=CacheSettings(ttl_jitter=0.1))
    airports = dimension()
    weather = dimension(key=["origin", "hour"], columns=["wind", "temp"])
    versions = dimension(versions={"valid_from": "since"}).versions

    assert airports.engine_settings("airports") == expected
    assert (airports.columns, airports.match, airports.versions) == (None, None, None)
    assert (weather.key, weather.columns) == (("origin", "hour"), ("wind", "temp"))
    rules = [dimension(match=rule).match for rule in (None, "first", "all")]
    assert (rules, versions) == ([None, Match.FIRST, Match.ALL], Versions(valid_from="since"))


def test_written_values_reach_the_engine() -> None:
    """Every value of a dimension reaches the engine, in seconds and bytes."""
    written = parsed("""
        timeout: 9s
        wait_for_dimension: 500ms
        default: {name: "?", tier: 0}
        match: first
        cache: {mode: partial, max_bytes: 16KiB, ttl: 1m, negative_ttl: 0s, ttl_jitter: 0.25,
                stale_while_revalidate: 30s, stale_if_error: 1h}
        batch: {max_keys: 9, linger: 5ms, max_in_flight: 2, max_queries_per_second: 7}
        retry: {max_retries: 0, backoff: {initial: 10ms, max: 1m, multiplier: 1.5},
                on_missing: {max_retries: 3, delay: 250ms}}
        refresh: {listen: {max_staleness: 7s}, audit: {every: 5m, keys: 9}}
    """)

    assert table(**written).engine_settings("customers") == DimensionSettings(
        name="customers",
        timeout_s=9.0,
        wait_for_dimension_s=0.5,
        default={"name": "?", "tier": 0},
        match=Match.FIRST,
        cache=CacheSettings(
            mode=CacheMode.PARTIAL,
            max_bytes=16_384,
            ttl_s=60.0,
            negative_ttl_s=0.0,
            ttl_jitter=0.25,
            stale_while_revalidate_s=30.0,
            stale_if_error_s=3600.0,
        ),
        batch=BatchSettings(9, 0.005, max_in_flight=2, max_queries_per_s=7),
        retry=RetrySettings(
            max_retries=0,
            initial_s=0.01,
            max_s=60.0,
            multiplier=1.5,
            on_missing=OnMissingSettings(3, 0.25),
        ),
        feed=FeedSettings(max_silence_s=7.0, audit=AuditSettings(300.0, 9, grace_s=15.0)),
    )


@pytest.mark.parametrize(
    ("reload", "expected"),
    [
        ({"every": "10m"}, ReloadSettings(every_s=600.0)),
        ({"at": "03:30"}, ReloadSettings(at_s=12_600.0)),
    ],
)
def test_full_cache_is_loaded_as_written(reload: dict[str, str], expected: ReloadSettings) -> None:
    """A full cache has a load, and may have a change feed and reloads at the same time."""
    cache = {"mode": "full", "while_loading": "fetch", "warmup_max_wait": "1m", "load_spread": "2s"}
    refresh = {"changelog": CHANGELOG, "reload": reload}

    customers = table(cache=cache, refresh=refresh)

    assert customers.refresh.feed == "changelog"
    assert customers.engine_settings("customers").full == FullSettings(
        WhileLoading.FETCH, 60.0, expected, load_spread_s=2.0
    )


def audit(grace_s: float) -> AuditSettings:
    """An audit as by default, with this grace."""
    return AuditSettings(every_s=60.0, keys=50, grace_s=grace_s)


@pytest.mark.parametrize(
    ("refresh", "feed", "expected"),
    [
        ("{listen: null, changelog: null, reload: null}", None, FeedSettings()),
        ("listen: {}", "listen", FeedSettings(max_silence_s=10.0, audit=audit(15.0))),
        ("{listen: {}, audit: null}", "listen", FeedSettings(max_silence_s=10.0)),
        (
            "changelog: {alignment: {max_drift: 2s}}",
            "changelog",
            FeedSettings(max_drift_s=2.0, audit=audit(300.0)),
        ),
        (
            "changelog: {heartbeat_topic: b}",
            "changelog",
            FeedSettings(max_staleness_s=30.0, audit=audit(30.0)),
        ),
        (
            "changelog: {heartbeat_topic: b, max_staleness: 1m}",
            "changelog",
            FeedSettings(max_staleness_s=60.0, audit=audit(60.0)),
        ),
    ],
)
def test_feed_has_bounds(refresh: str, feed: str | None, expected: FeedSettings) -> None:
    """A dimension has at most one feed; its claim, and the grace, depend on its heartbeats."""
    written = dict(parsed(refresh))
    if feed == "changelog":
        written["changelog"] = CHANGELOG | written["changelog"]

    customers = table(refresh=written)

    assert customers.refresh.feed == feed
    assert customers.engine_settings("customers").feed == expected


@pytest.mark.parametrize("written", [False, "off", "false", {"every": None}], ids=str)
def test_audit_is_turned_off_by_null(written: object) -> None:
    """An audit without a time between queries is a fault, with null as the remedy."""
    remedy = "has no time between queries; to turn the audit off, write `audit: null`"

    with pytest.raises(ValidationError, match=remedy):
        Refresh.model_validate({"listen": {}, "audit": written})

    assert Refresh.model_validate({"listen": {}, "audit": None}).audit is None


@pytest.mark.parametrize(
    "document",
    [
        "cache: {ttl_jitter: 0, negative_ttl: 0s, max_bytes: 16KiB, ttl: 1ms}",
        "cache: {ttl_jitter: 0.5, stale_if_error: 365d, ttl: 365d}",
        "cache: {mode: full, stale_if_error: 1h, while_loading: fetch, warmup_max_wait: 1d}",
        "batch: {max_keys: 1, max_in_flight: 1, linger: 1999ms, max_queries_per_second: 1}",
        "{timeout: 1h, batch: {max_keys: 100000, max_in_flight: 1000, linger: 10s}}",
        "timeout: 10ms",
        "{timeout: 50ms, retry: {max_retries: 0, backoff: {initial: 50ms}}}",
        "{timeout: 2s, retry: {on_missing: {delay: 2s}}}",
        "retry: {max_retries: 100, on_missing: {max_retries: 100, delay: 1999ms}}",
        "retry: {backoff: {initial: 50ms, max: 50ms, multiplier: 1}}",
        "{default: {name: none, tier: 0}, columns: [name, tier]}",
        "{wait_for_dimension: 1999ms, refresh: {listen: {max_staleness: 6s}}}",
        "versions: {valid_from: since, valid_to: until}",
        "{columns: [since, until], versions: {valid_from: since, valid_to: until}}",
    ],
)
def test_bounds_belong_to_their_range(document: str) -> None:
    """The bounds of a range are valid, and so are values without a conflict."""
    assert table(**parsed(document)) != table()


def test_first_layer_wins_key_by_key() -> None:
    """A layer changes what it names, and nothing next to it."""
    upper = {"dimensions": {"airports": {"timeout": "3s"}}}
    lower = {"dimensions": {"airports": AIRPORTS | {"timeout": "1s"}}}

    airports = Settings(upper, lower).dimensions["airports"]

    assert (airports.timeout_s, airports.key) == (3.0, ("faa",))


@pytest.mark.parametrize(
    "where",
    ['"user" > 0', "role = 'user'", "name <> 'it''s a table'", "user_id > 0", "a -- select"],
)
def test_quoted_words_are_no_sql(where: str) -> None:
    """Names and texts may have words that would change the result elsewhere."""
    assert PostgresSource.model_validate(POSTGRES | {"where": where}).feed_fault is None


def test_equal_changes_may_share_a_channel() -> None:
    """A channel carries the keys of one table of one server."""
    listen = {"refresh": {"listen": {"channel": "shop"}}}
    elsewhere = POSTGRES | {"table": "public.orders", "dsn": "postgresql://other/shop"}

    for other in ({"columns": ["name"]}, {"source": elsewhere}):
        dimensions = {"a": CUSTOMERS | listen, "b": CUSTOMERS | listen | other}
        assert len(Settings({"dimensions": dimensions}).dimensions) == 2


def test_channel_has_the_dimension_s_name() -> None:
    """A name that PostgreSQL would truncate ends with a digest; a given name is unchanged."""
    names = ("customers", "c" * 54, "c" * 55, "c" * 63)

    channels = [Notifications().channel_of(name) for name in names]

    assert channels == [
        "sidelook_customers",
        f"sidelook_{'c' * 54}",
        f"sidelook_{'c' * 45}_2c4ba9a9",
        f"sidelook_{'c' * 45}_93378fde",
    ]
    assert Notifications(channel="Shop.customers").channel_of("a") == "Shop.customers"


def test_secrets_are_read_and_not_shown(tmp_path: Path) -> None:
    """Address and password come from their files each time; no text of a source shows them."""
    file = tmp_path / "secret"
    file.touch(mode=0o600)
    file.write_text("postgresql://u:geheim@h/d\n")
    here = PostgresSource.model_validate(POSTGRES | {"dsn": "postgresql://u:geheim@h/d"})
    there = PostgresSource.model_validate(POSTGRES | {"dsn": None, "dsn_file": str(file)})
    login = {"mechanism": "PLAIN", "username": "sidelook", "password_file": str(file)}
    security = Security.model_validate(login)

    first = there.read_dsn()
    file.write_text("rotated")

    assert here.read_dsn() == first == "postgresql://u:geheim@h/d"
    assert "geheim" not in f"{here!r}{here}{here.model_dump()}{here.model_dump_json()}"
    assert there.read_dsn() == security.read_password() == "rotated"
    assert Security().read_password() is None


def test_schema_is_written_like_the_file() -> None:
    """The schema has defaults, ranges and units in the form of the file."""
    definitions = json.loads(json.dumps(Settings.model_json_schema()))["$defs"]
    ttl = definitions["Cache"]["properties"]["ttl"]
    multiplier = definitions["RetryBackoff"]["properties"]["multiplier"]

    assert definitions["Listen"]["properties"]["health"]["default"] == "0.0.0.0:8816"
    assert (ttl["default"], ttl["type"]) == ("10m", "string")
    assert ttl["pattern"] == r"^(\d+(?:\.\d+)?)(ms|s|m|h|d)$"
    assert (ttl["x-quantity"], ttl["x-minimum"], ttl["x-maximum"]) == ("duration", "1ms", "365d")
    assert definitions["Batch"]["properties"]["max_keys"]["type"] == "integer"
    assert (multiplier["type"], multiplier["minimum"], multiplier["maximum"]) == ("number", 1, 100)


def test_relative_paths_start_at_the_folder(tmp_path: Path) -> None:
    """Sockets, secrets and files are found next to the configuration; names are no paths."""
    (tmp_path / "token").touch(0o600)
    (tmp_path / "token").write_text("t0ken")
    file = {"kind": "parquet", "path": "a.parquet"}
    one = {"key": ["id"], "columns": ["path"], "source": file, "default": {"path": "x"}}
    document = {"auth": {"token_file": "token"}, "dimensions": {"path": one}}

    settings = Settings({"listen": {"unix": "s.sock"}}, document, folder=tmp_path)

    config = settings.dimensions["path"]
    assert isinstance(config.source, ParquetSource)
    paths = (settings.listen.unix, settings.auth.token_file, config.source.path)
    assert paths == (tmp_path / "s.sock", tmp_path / "token", tmp_path / "a.parquet")
    assert (config.columns, config.default) == (("path",), {"path": "x"})


def test_every_path_is_anchored() -> None:
    """A new key that holds a path is found by this test."""
    fields = [
        (name, f"{field.annotation}{field.metadata}")
        for section in Section.__subclasses__()
        for name, field in section.model_fields.items()
    ]

    assert [name for name, text in fields if "Path" in text and "_anchored" not in text] == []
    assert "cert_file" in {name for name, text in fields if "_anchored" in text}
