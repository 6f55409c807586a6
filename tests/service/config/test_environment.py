"""Variables as a layer over the file."""

import pytest

from service.config.environment import Environment, read_environment, variable_of


def test_names_are_paths() -> None:
    """Two underscores part the keys; the rest of the environment is left alone."""
    environ = {"SIDELOOK_LISTEN__HTTP": "127.0.0.1:1", "SIDELOOKING": "x", "PATH": "/bin"}

    assert read_environment(environ, {}) == Environment(
        values={"listen": {"http": "127.0.0.1:1"}},
        origins={("listen", "http"): "SIDELOOK_LISTEN__HTTP"},
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3s", "3s"),
        ("500", "500"),
        ("", None),
        ("null", None),
        ("true", True),
        ("false", False),
        ('["a", "b"]', ["a", "b"]),
        ("[a, b]", ["a", "b"]),
        ('{"max_keys": 5}', {"max_keys": 5}),
        ("postgresql://u:p#*&!@h/d", "postgresql://u:p#*&!@h/d"),
    ],
)
def test_values_are_texts_or_lists(text: str, value: object) -> None:
    """Only what begins like a list or a mapping is parsed; nothing means null."""
    assert read_environment({"SIDELOOK_A": text}, {}).values == {"a": value}


@pytest.mark.parametrize(
    ("variable", "name"), [("CUSTOMERS", "Customers"), ("MY_AIR_PORTS", "my-air.ports")]
)
def test_names_take_the_documents_spelling(variable: str, name: str) -> None:
    """A variable cannot spell capitals, hyphens and dots, so it means the key that has them."""
    environ = {f"SIDELOOK_DIMENSIONS__{variable}__TIMEOUT": "1s"}

    environment = read_environment(environ, {"dimensions": {name: {}}})

    assert environment.values == {"dimensions": {name: {"timeout": "1s"}}}


def test_path_has_one_variable() -> None:
    """The variable of a path sets the value there, however the file spells its words."""
    path = ("dimensions", "My-air.ports", "timeout")

    environment = read_environment({variable_of(path): "1s"}, {"dimensions": {"My-air.ports": {}}})

    assert variable_of(path) == "SIDELOOK_DIMENSIONS__MY_AIR_PORTS__TIMEOUT"
    assert list(environment.origins) == [path]


def test_parts_go_into_the_whole() -> None:
    """A variable for a part refines one for the whole, whatever their order."""
    environ = {"SIDELOOK_BATCH__LINGER": "1ms", "SIDELOOK_BATCH": "{max_keys: 1, linger: 2ms}"}

    assert read_environment(environ, {}).values == {"batch": {"max_keys": 1, "linger": "1ms"}}


def test_parts_of_a_text_are_refused() -> None:
    """A part of what another variable sets as a text is a contradiction."""
    environ = {"SIDELOOK_LISTEN": "x", "SIDELOOK_LISTEN__HTTP": "127.0.0.1:1"}

    assert read_environment(environ, {}).faults == [
        "SIDELOOK_LISTEN__HTTP: a part of 'listen', which another variable sets as text"
    ]


@pytest.mark.parametrize("text", ["[a", "{a: 1, b", '["a" "b"]', "{a: *x}"])
def test_broken_lists_are_faults(text: str) -> None:
    """What begins like a list or a mapping has to be one; its text is not shown."""
    environment = read_environment({"SIDELOOK_A": text}, {})

    assert environment == Environment(
        faults=["SIDELOOK_A: begins like a list or a mapping, but is none"]
    )


@pytest.mark.parametrize("name", ["SIDELOOK_", "SIDELOOK___A", "SIDELOOK_A__"])
def test_odd_names_become_unknown_keys(name: str) -> None:
    """A name with nothing between its delimiters is left to the check for unknown keys."""
    environment = read_environment({name: "1"}, {})

    assert list(environment.origins.values()) == [name]
