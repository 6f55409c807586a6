"""Nothing private leaves in an event, neither as a field nor inside a text or an error."""

import pytest

from service.observability.logs import MAX_TEXT, REMOVED, log_privacy


@pytest.mark.parametrize("name", ["key", "keys", "row", "rows", "token", "password", "dsn"])
def test_private_fields_are_removed(name: str) -> None:
    """A field that holds what must not be logged keeps its name and loses its value."""
    assert log_privacy(None, "info", {"event": "x", name: "secret"}) == {
        "event": "x",
        name: REMOVED,
    }


def test_other_fields_are_kept() -> None:
    """Codes, counts and dimensions stay as they are."""
    event = {"event": "query.failed", "code": "timeout", "keys_total": 3, "dimension": "airports"}

    assert log_privacy(None, "info", dict(event)) == event


def test_passwords_in_urls_are_removed() -> None:
    """A connection string that slips into a text loses its user and password."""
    event = log_privacy(None, "info", {"event": "to postgresql://bob:hunter2@db:5432/x"})

    assert event == {"event": f"to postgresql://{REMOVED}@db:5432/x"}


def test_long_texts_are_cut() -> None:
    """Only the first line of a text is logged, and not more of it than fits a line."""
    event = log_privacy(None, "info", {"event": "a" * 1000, "text": "one\ntwo"})

    assert event == {"event": "a" * MAX_TEXT, "text": "one"}


@pytest.mark.parametrize("as_flag", [True, False])
def test_errors_lose_their_message(*, as_flag: bool) -> None:
    """An error is told as its type and place; its message may quote a key."""
    try:
        _fail()
    except RuntimeError as error:
        event = log_privacy(None, "error", {"event": "x", "exc_info": as_flag or error})

    frames = event.pop("frames")
    assert event == {"event": "x", "error": "builtins.RuntimeError", "cause": "builtins.KeyError"}
    assert [frame.rpartition(" ")[2] for frame in frames][-1] == "_fail"


def test_absent_errors_add_nothing() -> None:
    """An event without an error has no error's fields."""
    assert log_privacy(None, "info", {"event": "x", "exc_info": None}) == {"event": "x"}


def _fail() -> None:
    raise RuntimeError("the key was 4711") from KeyError(4711)
