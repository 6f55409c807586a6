"""Faults as lines for people."""

import pytest
from pydantic import ValidationError

from service.config.fault_lines import fault_lines
from service.config.settings import Settings
from tests.service.config.configuration import (
    AIRPORTS,
    MINIMAL,
    dimension_faults,
    faults,
    table_faults,
)


@pytest.mark.parametrize(
    ("wrong", "fault"),
    [
        ({"cache": {"tll": "1s"}}, "cache.tll: unknown key; did you mean 'ttl'?"),
        ({"cache": {"ttl_s": "1s"}}, "cache.ttl_s: unknown key; did you mean 'ttl'?"),
        ({"timeot": "1s"}, "timeot: unknown key; did you mean 'timeout'?"),
        ({"source": {"pth": "x"}}, "source.pth: unknown key; did you mean 'path'?"),
        ({"cache": {"warmup": "1s"}}, "cache.warmup: unknown key; did you mean 'warmup_max_wait'?"),
        (
            {"batch": {"zzz": 1}},
            "batch.zzz: unknown key; known here are max_keys, linger, max_in_flight",
        ),
    ],
)
def test_unknown_keys_get_the_nearest_name(wrong: dict[str, object], fault: str) -> None:
    """A typing error is answered with the key that was meant, where one is near."""
    assert dimension_faults(**wrong) == [fault]


@pytest.mark.parametrize(
    ("key", "section"), [("reload", "refresh"), ("mode", "cache"), ("path", "source")]
)
def test_misplaced_keys_are_told_their_place(key: str, section: str) -> None:
    """A key that stands one level too high is sent to where it belongs."""
    assert dimension_faults(**{key: {}}) == [f"{key}: unknown key; it belongs below {section}"]


def test_shortened_words_are_told_whole() -> None:
    """A word that one of the known ones begins with is most likely meant as that one."""
    changelog = {"brokers": ["kafka:9092"], "topic": "t", "format": "debezium"}

    (fault,) = table_faults(refresh={"changelog": changelog})

    told = "refresh.changelog.format: must be 'debezium_json' or 'upsert_json'"
    assert fault == f"{told}; did you mean 'debezium_json'?"


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ({"versions": "since"}, ", such as { valid_from: since, valid_to: until }"),
        ({"refresh": {"listen": True}}, "; {} takes the defaults"),
        ({"refresh": {"reload": "1h"}}, ", such as { every: 1h }"),
    ],
)
def test_shorthands_are_told_written_out(wrong: dict[str, object], hint: str) -> None:
    """Who leaves a mapping's braces out is shown one."""
    (fault,) = dimension_faults(**wrong)

    assert fault.partition(": ")[2] == f"must be a mapping of keys to values{hint}"


@pytest.mark.parametrize(
    ("wrong", "fault"),
    [
        ({"cache": None}, "cache: must be a mapping of keys to values, such as { ttl: 10m }"),
        ({"source": "x"}, "source: must be a mapping of keys to values"),
        ({"source": {"path": 5}}, "source.path: must be a path"),
        ({"key": {}}, "key: must be a list"),
        ({"cache": {1: 2}}, "cache.1: is a key that is no text; write it in quotes"),
    ],
)
def test_wrong_types_are_told_in_words(wrong: dict[str, object], fault: str) -> None:
    """Faults of form are told in the file's words, not in Python's."""
    assert dimension_faults(**wrong) == [fault]


@pytest.mark.parametrize("word", ["yes", 1, None])
def test_booleans_are_true_or_false(word: object) -> None:
    """YAML's other words for them are refused."""
    assert faults({"allow_inline_secrets": word}) == ["allow_inline_secrets: must be true or false"]


def test_missing_keys_are_told() -> None:
    """What has no default is told by its path."""
    assert faults({"dimensions": {"b": {}, "c": {"source": {}, "key": ["k"]}}}) == [
        "dimensions.b.source: missing, and required",
        "dimensions.b.key: missing, and required",
        "dimensions.c.source: kind is missing; give 'postgres' or 'parquet'",
    ]


def test_all_faults_come_at_once() -> None:
    """Unit, unknown key and contradiction stand in one list, though in different parts."""
    wrong = AIRPORTS | {"timeout": 5, "cache": {"tll": "5m"}, "columns": ["faa"]}

    found = faults({"listen": {"http": "0.0.0.0:1"}, "dimensions": {"airports": wrong}})

    assert [fault.split(": ")[0] for fault in found] == [
        "listen.http",
        "dimensions.airports.columns",
        "dimensions.airports.cache.tll",
        "dimensions.airports.timeout",
    ]


def test_variables_are_named() -> None:
    """A fault of a value tells which variable it came from; other faults do not."""
    values = {"foo": {"bar": 1}, "limits": {"channels": "0"}, "listen": {"http": "x"}}
    origins = {("foo", "bar"): "SIDELOOK_FOO__BAR", ("limits",): "SIDELOOK_LIMITS"}

    with pytest.raises(ValidationError) as raised:
        Settings(values, MINIMAL)
    lines = list(fault_lines(raised.value, Settings, origins=origins))

    assert [line.partition(" (set by ")[2] for line in lines] == [
        "",
        "SIDELOOK_LIMITS)",
        "SIDELOOK_FOO__BAR)",
    ]


def test_values_are_not_shown() -> None:
    """A password in the place of a mapping or a text is not repeated."""
    found = faults({"auth": "geheim", "limits": {"geheim1": "geheim2"}, "listen": ["geheim"]})

    assert "geheim2" not in "".join(found)
    assert sum("geheim" in fault for fault in found) == 1  # the unknown key itself
