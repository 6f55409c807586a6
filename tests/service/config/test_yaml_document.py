"""YAML files: their form, and what is refused of it."""

from pathlib import Path

import pytest

from lookup_core.errors import ConfigurationError
from service.config.yaml_document import YamlDocument, parse_yaml_document, read_yaml_document


def faults_of(text: str) -> tuple[str, ...]:
    """Why a text is no document."""
    with pytest.raises(ConfigurationError) as raised:
        parse_yaml_document(text)
    return raised.value.faults


def test_mapping_is_a_document() -> None:
    """Values keep the types of YAML 1.2: `no` is a word, `010` is ten."""
    values = {"a": {"b": [1, 2.5, True, None]}, "c": "no", "d": 10, "e": "12:30"}

    assert parse_yaml_document(
        "{a: {b: [1, 2.5, true, null]}, c: no, d: 010, e: 12:30}"
    ) == YamlDocument(values)


@pytest.mark.parametrize("text", ["", "\n", "# nothing\n", "---\n"])
def test_nothing_is_an_empty_document(text: str) -> None:
    """A file of comments only is a configuration of defaults."""
    assert parse_yaml_document(text) == YamlDocument({})


def test_every_repeated_key_is_told() -> None:
    """A key that a mapping has twice is a fault with both lines; at other places it is another."""
    text = "a:\n  b: 1\n  c: {b: 1, b: 2}\n  b: 3\nd: 1\nb: 1\nd: 2\n"

    assert parse_yaml_document(text).faults == (
        "d: given twice, in lines 5 and 7",
        "a.b: given twice, in lines 2 and 4",
        "a.c.b: given twice, in lines 3 and 3",
    )


@pytest.mark.parametrize("value", ["2024-02-30", "9" * 5000])
def test_impossible_values_are_told(value: str) -> None:
    """A value that looks like a date or a number, and is none that there can be, is a fault."""
    assert faults_of(f"a: {value}") == (
        "has a date that does not exist, or a number too long; write it in quotes",
    )


def test_anchors_share_values() -> None:
    """Anchors and merges are usual, and no repeated keys."""
    document = parse_yaml_document("a: &x {k: 1, l: 2}\nb: *x\nc: {<<: *x, k: 3}\n")

    assert document == YamlDocument(
        {"a": {"k": 1, "l": 2}, "b": {"k": 1, "l": 2}, "c": {"k": 3, "l": 2}}
    )


def test_anchor_inside_itself_ends() -> None:
    """A mapping that holds itself is walked once."""
    assert parse_yaml_document("a: &x {b: *x, b: 1}").faults == (
        "a.b: given twice, in lines 1 and 1",
    )


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("- 1", "must be a mapping of keys to values"),
        ("geheim", "must be a mapping of keys to values"),
        ("a: 1\n---\nb: 2", "not YAML: but found another document, in line 2"),
        ("a: !!python/name:os.system", "not YAML: could not determine a constructor for the tag"),
        ("a: *x", "not YAML: found undefined alias 'x', in line 1"),
        ("a: \0", "not YAML: has characters not allowed"),
        ("a: [" * 3000, "nested too deeply"),
    ],
)
def test_other_forms_are_refused(text: str, fault: str) -> None:
    """Lists, several documents, tags and broken syntax are told with their line."""
    (found,) = faults_of(text)

    assert found.startswith(fault)


def test_broken_lines_are_not_shown() -> None:
    """The line of a mistake may hold a password, so only its number is told."""
    assert faults_of('a: 1\ndsn: "postgresql://u:geheim@h/d" oops') == (
        "not YAML: expected <block end>, but found '<scalar>', in line 2",
    )


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    """A file that is missing, a folder or no text is named in the fault."""
    binary = tmp_path / "binary"
    binary.write_bytes(b"a: \xff")

    for path, reason in [
        (binary, "not UTF-8"),
        (tmp_path, "Is a dir"),
        (tmp_path / "x", "No such"),
    ]:
        with pytest.raises(ConfigurationError) as raised:
            read_yaml_document(path)
        assert str(path) in raised.value.faults[0]
        assert reason in raised.value.faults[0]


def test_keys_at_the_top_become_texts() -> None:
    """A number as a key reaches the checks, which refuse it by name."""
    assert parse_yaml_document("1: a").values == {"1": "a"}
