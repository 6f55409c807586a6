"""Notifications that wait to be read: in order, bounded, and what was lost before is told."""

import sys

from lookup_core.changelog.change_decoder import TableChange
from lookup_core.watermark_valve import NO_WATERMARK_MS
from service.connectors.postgres.notifications_source import PostgresNotificationsInbox, Taken

GAP = "notifications may have been lost before the connection was made"
FOUR_BYTES = sys.getsizeof("aaaa")


def connected(*entries: str | int, max_bytes: int = 10_000) -> PostgresNotificationsInbox:
    """An inbox whose first loss was told, with these entries."""
    inbox = PostgresNotificationsInbox(max_bytes=max_bytes)
    inbox.take(1)
    for entry in entries:
        assert inbox.put(entry)
    return inbox


def test_begins_with_a_loss() -> None:
    """What was told before the connection was made is lost, which comes before all else."""
    inbox = PostgresNotificationsInbox(max_bytes=1_000)
    inbox.put("a")

    assert not inbox.is_empty
    assert inbox.take(1_000) == Taken(["a"], TableChange(GAP), NO_WATERMARK_MS)
    assert inbox.is_empty


def test_loss_has_its_last_transaction() -> None:
    """Up to which transaction something may be lost is known when somebody listens; in 32 bits."""
    inbox = PostgresNotificationsInbox(max_bytes=1_000)
    inbox.on_connected(2**32 + 5)

    assert inbox.take(1_000) == Taken([], TableChange(GAP, 5), NO_WATERMARK_MS)


def test_payloads_keep_their_order() -> None:
    """Payloads come out as they came in, each once."""
    inbox = connected("a", "b", "a")

    assert inbox.take(1_000) == Taken(["a", "b", "a"], None, NO_WATERMARK_MS)
    assert inbox.take(1_000) == Taken([], None, NO_WATERMARK_MS)


def test_heartbeat_counts_behind_what_was_before() -> None:
    """The time of a heartbeat is told when all that came before it is, and not earlier."""
    inbox = connected("before", 1_700_000_000_000, "after")

    taken = [inbox.take(1), inbox.take(1), inbox.take(1)]

    assert taken == [
        Taken(["before"], None, NO_WATERMARK_MS),
        Taken([], None, 1_700_000_000_000),
        Taken(["after"], None, NO_WATERMARK_MS),
    ]


def test_only_heartbeats_show_life() -> None:
    """Whether there was a heartbeat is asked for, not what the number means."""
    inbox = connected("payload", 5)

    assert (inbox.take(1).has_heartbeat, inbox.take(1).has_heartbeat) == (False, True)


def test_a_take_is_bounded() -> None:
    """So many bytes are taken at a time, and the entry that passes them; the others wait."""
    inbox = connected("aaaa", "bbbb", "cccc")

    assert inbox.take(FOUR_BYTES + 1).payloads == ["aaaa", "bbbb"]
    assert inbox.take(FOUR_BYTES + 1).payloads == ["cccc"]


def test_too_much_is_not_taken() -> None:
    """What does not fit is refused; what waits stays."""
    inbox = connected("aaaa", "bbbb", "cccc", max_bytes=3 * FOUR_BYTES)

    assert not inbox.put("dddd")

    assert inbox.take(1_000) == Taken(["aaaa", "bbbb", "cccc"], None, NO_WATERMARK_MS)


def test_taking_makes_room() -> None:
    """Bytes that were taken do not count any more, whatever they were of."""
    inbox = connected("aaaa", 7, max_bytes=2 * FOUR_BYTES)

    inbox.take(1_000)
    assert inbox.put("bbbb")
    assert inbox.put("cccc")

    assert inbox.take(1_000) == Taken(["bbbb", "cccc"], None, NO_WATERMARK_MS)
