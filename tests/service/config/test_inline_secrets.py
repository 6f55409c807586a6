"""Passwords in the file itself."""

from service.config.loading import inline_secrets


def test_each_password_is_a_fault() -> None:
    """Every address with a password is told, and none is shown."""
    dimensions = {
        "a": {"source": {"dsn": "postgresql://u:geheim@h/d"}},
        "b": {"source": {"dsn": "postgresql://postgres:@h/d"}},
        "c": {"source": {"dsn": "postgresql://h/d?password=geheim"}},
    }
    remedy = "holds a password; put it in dsn_file, or set allow_inline_secrets: true"

    assert list(inline_secrets({"dimensions": dimensions})) == [
        f"dimensions.a.source.dsn: {remedy}",
        f"dimensions.c.source.dsn: {remedy}",
    ]


def test_other_forms_are_no_secrets() -> None:
    """What is not a configuration is left to the checks."""
    wrong = {"a": None, "b": {"source": "x"}, "c": {"source": {"dsn": 5}}, "d": {}}

    assert list(inline_secrets({"dimensions": wrong})) == []
    assert list(inline_secrets({"dimensions": 5})) == []
    assert list(inline_secrets({})) == []
