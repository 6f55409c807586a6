"""One dimension, and what contradicts itself in it."""

from lookup_core.settings import CacheSettings, DimensionSettings, Match
from tests.service.config.configuration import dimension, dimension_faults, table, table_faults


def test_little_suffices() -> None:
    """A source and a key make a dimension that the engine runs with its own defaults."""
    expected = DimensionSettings(name="airports", cache=CacheSettings(ttl_jitter=0.1))

    assert dimension().engine_settings("airports") == expected


def test_engine_gets_every_part() -> None:
    """Each part of a dimension reaches the engine."""
    settings = dimension(
        timeout="9s", cache={"ttl": "1s"}, batch={"max_keys": 1}, retry={"max_retries": 0}
    ).engine_settings("a")

    assert (settings.timeout_s, settings.cache.ttl_s) == (9.0, 1.0)
    assert (settings.batch.max_keys, settings.retry.max_retries) == (1, 0)


def test_key_and_columns_keep_their_order() -> None:
    """Keys are given, and columns come, in the order of the file."""
    weather = dimension(key=["origin", "hour"], columns=["wind", "temp"])

    assert (weather.key, weather.columns) == (("origin", "hour"), ("wind", "temp"))


def test_key_columns_are_not_columns() -> None:
    """A key column that is listed among the columns would come twice."""
    assert dimension_faults(columns=["name", "faa"]) == [
        "columns: faa: part of the key, so not to be listed here, too"
    ]


def test_several_rows_are_an_error_by_default() -> None:
    """Who expects several rows for a key says which of them count."""
    rules = [dimension().match, dimension(match="first").match, dimension(match="all").match]

    assert rules == [None, Match.FIRST, Match.ALL]
    assert dimension_faults(match="last") == ["match: must be 'first' or 'all'"]


def test_names_stand_once() -> None:
    """A column that is named twice is a typing error."""
    assert dimension_faults(key=["a", "a"], columns=["b", "c", "b"]) == [
        "key: a: named more than once",
        "columns: b: named more than once",
    ]


def test_nothing_is_no_key() -> None:
    """Neither the key nor a list of columns may be empty."""
    assert dimension_faults(key=[], columns=[]) == [
        "key: must not be empty",
        "columns: must not be empty",
    ]


def test_names_are_texts_in_lists() -> None:
    """A lone name, a number or an empty name is refused."""
    assert dimension_faults(key="faa", columns=[1, ""]) == [
        "key: must be a list",
        "columns.0: must be text; write it in quotes",
        "columns.1: must not be empty",
    ]


def test_lookups_outlast_the_linger() -> None:
    """A batch that waits as long as its lookups may take answers none of them."""
    assert dimension_faults(batch={"linger": "2s"}) == [
        "timeout: not longer than batch.linger: no lookup could be answered in time"
    ]


def test_lookups_outlast_the_backoff() -> None:
    """Retries that could never begin are a contradiction where somebody wrote them."""
    (fault,) = dimension_faults(timeout="50ms", retry={"backoff": {"initial": "50ms"}})

    assert fault.startswith("timeout: not longer than retry.backoff.initial: no retry could begin")


def test_lookups_outlast_the_delay_of_late_rows() -> None:
    """Rows that could never be asked for again in time are a contradiction, too."""
    on_missing = {"max_retries": 1, "delay": "2s"}

    (fault,) = dimension_faults(timeout="2s", retry={"on_missing": on_missing})

    assert fault == (
        "timeout: not longer than retry.on_missing.delay: no row could be asked for again in "
        "time; lower that, or set retry.on_missing.max_retries to 0"
    )
    assert dimension(timeout="2s", retry={"on_missing": {"delay": "2s"}}).timeout_s == 2.0


def test_short_timeout_alone_is_fine() -> None:
    """A timeout below the default waiting only means that there are no retries."""
    assert dimension(timeout="10ms").timeout_s == 0.01


def test_default_row_names_offered_columns() -> None:
    """The row for keys that have none may have any column that is offered, and no other."""
    default = {"name": "nobody", "tier": 0}
    assert dimension(default=default).engine_settings("x").default == default

    faults = dimension_faults(columns=["name"], default={"naem": 1})
    of_key = dimension_faults(key=["id"], default={"id": 1})

    assert faults == ["default: naem: not among columns; did you mean name?"]
    assert of_key == ["default: id: part of the key, which is the record's own"]


def test_waiting_leaves_time_for_an_answer() -> None:
    """Who waits for changes up to a time is told of them, and is answered before its timeout."""
    assert table(wait_for_dimension="1s", refresh={"listen": {}}).wait_for_dimension_s == 1.0
    (fault,) = table_faults(wait_for_dimension="2s", refresh={"listen": {}})
    assert fault == (
        "wait_for_dimension: 2s is not shorter than timeout (2s) of the same dimension: no time "
        "would be left for an answer; raise that, or lower this"
    )
    assert dimension_faults(wait_for_dimension="1s") == [
        "wait_for_dimension: nothing tells of changes: give refresh.listen or refresh.changelog"
    ]
