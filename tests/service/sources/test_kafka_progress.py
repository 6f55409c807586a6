"""How far one partition is read, and how long nothing was heard of it."""

from lookup_core.watermark_valve import NO_WATERMARK_MS
from service.connectors.kafka.progress import Clocks, KafkaProgress, Poll

WALL_MS = 1_000_000.0  # when the monotonic clock shows zero


def at(monotonic_s: float, *, jump_s: float = 0.0) -> Clocks:
    """A moment; the wall clock may have been set in between."""
    return Clocks(monotonic_s, WALL_MS + (monotonic_s + jump_s) * 1000)


def poll(
    position: int, *, answered_s: float | None, end: int = 10, stable: int | None = None
) -> Poll:
    """What the consumer knows; by its wall clock, `answered_s` after the start."""
    if answered_s is None:
        return Poll(position)
    answered_ms = int(WALL_MS + answered_s * 1000)
    return Poll(position, answered_ms, end, end if stable is None else stable)


def test_end_at_the_start_is_caught_up() -> None:
    """All is read when the position is where the partition ended, however much came since."""
    progress = KafkaProgress(4, end=6, at=at(0))
    states = [progress.is_caught_up]

    for position in (5, 6, 9):
        progress.look(poll(position, answered_s=position), at=at(position))
        states.append(progress.is_caught_up)

    assert states == [False, False, True, True]
    assert (progress.position, progress.total) == (9, 10)


def test_empty_partition_must_answer() -> None:
    """Where there is nothing to read, a broker must have said so."""
    progress = KafkaProgress(6, end=6, at=at(0))

    progress.look(poll(6, answered_s=None), at=at(1))
    before = progress.is_caught_up
    progress.look(poll(6, answered_s=1.5, end=6), at=at(2))

    assert (before, progress.is_caught_up) == (False, True)


def test_silence_counts_from_the_last_answer() -> None:
    """An answer that finds nothing new is a sign of life; none is silence."""
    progress = KafkaProgress(10, end=10, at=at(0))

    progress.look(poll(10, answered_s=3.0), at=at(3.5))
    progress.look(poll(10, answered_s=3.0), at=at(8.0))

    assert progress.silent_s(at=at(8.0)) == progress.unanswered_s(at=at(8.0)) == 5.0


def test_no_answer_is_silence_from_the_start() -> None:
    """A partition that was never heard of is silent since it was given out."""
    progress = KafkaProgress(0, end=10, at=at(1))

    progress.look(poll(0, answered_s=None), at=at(4))

    assert progress.silent_s(at=at(4)) == 3.0


def test_set_clocks_do_not_matter() -> None:
    """A wall clock that is set forward or back moves an answer to the last look at most."""
    for jump_s in (-3600.0, 3600.0):
        progress = KafkaProgress(10, end=10, at=at(0))
        progress.look(poll(10, answered_s=1.0), at=at(2.0))
        progress.look(poll(10, answered_s=2.5), at=at(3.0, jump_s=jump_s))

        assert 0.0 <= progress.unanswered_s(at=at(3.0)) <= 1.0


def test_reading_behind_is_silence() -> None:
    """What is there and not read may be anything: it counts since all was read the last time."""
    progress = KafkaProgress(10, end=10, at=at(0))

    progress.look(poll(10, answered_s=1.0), at=at(1))
    progress.look(poll(50, answered_s=5.0, end=900), at=at(5))
    behind_s = progress.silent_s(at=at(5))
    progress.look(poll(950, answered_s=6.0, end=950), at=at(6))

    assert (behind_s, progress.silent_s(at=at(6))) == (4.0, 0.0)


def test_open_transaction_is_silence() -> None:
    """Messages that a transaction hides count from when it was first seen in the way."""
    progress = KafkaProgress(5, end=5, at=at(0))

    for second in (1, 2, 3):
        progress.look(poll(5, answered_s=second, end=9, stable=5), at=at(second))
    hidden_s = progress.silent_s(at=at(3))
    progress.look(poll(9, answered_s=4, end=9), at=at(4))

    assert (hidden_s, progress.silent_s(at=at(4))) == (2.0, 0.0)


def test_moving_transactions_are_no_silence() -> None:
    """One transaction after the other hides nothing for long."""
    progress = KafkaProgress(5, end=5, at=at(0))

    for second in range(1, 20):
        end = 5 + second
        progress.look(poll(end, answered_s=second, end=end + 3, stable=end), at=at(second))

    assert progress.silent_s(at=at(19)) == 0.0


def test_resuming_forgives_unasked_questions() -> None:
    """Nobody was asked during a pause, so that no broker is away; what was missed still counts."""
    progress = KafkaProgress(10, end=10, at=at(0))
    progress.look(poll(10, answered_s=1.0), at=at(1))

    progress.resumed(at=at(60))

    assert progress.unanswered_s(at=at(60)) == 0.0
    assert progress.silent_s(at=at(60)) == 59.0


def test_watermark_is_the_largest_source_time() -> None:
    """Times that go back move nothing."""
    progress = KafkaProgress(0, end=0, at=at(0))
    marks = [progress.watermark_ms]

    for source_time_ms in (500, 300, NO_WATERMARK_MS):
        progress.told(source_time_ms)
        marks.append(progress.watermark_ms)

    assert marks == [NO_WATERMARK_MS, 500, 500, 500]


def test_heartbeat_waits_for_the_next_answer() -> None:
    """It counts when a broker, asked afterwards, has nothing that is not read; each in its turn."""
    progress = KafkaProgress(9, end=9, at=at(0))
    progress.look(poll(9, answered_s=1, end=9), at=at(1))
    marks = []

    progress.heartbeat(700, at=at(2))
    progress.heartbeat(800, at=at(2.5))
    for position, answered_s in ((9, 1), (9, 3), (10, 3.2), (10, 4)):
        seen = poll(position, answered_s=answered_s, end=9 if answered_s == 1 else 10)
        progress.look(seen, at=at(max(answered_s, 2.5)))
        marks.append(progress.watermark_ms)

    assert marks == [NO_WATERMARK_MS, NO_WATERMARK_MS, 700, 800]


def test_overtaking_heartbeat_does_not_count() -> None:
    """An older change that comes after it shows that it came before its turn; the next one may."""
    progress = KafkaProgress(9, end=9, at=at(0))
    marks = []

    progress.heartbeat(700, at=at(2))
    progress.overtaken(650)
    for answered_s in (4, 6):
        progress.look(poll(9, answered_s=answered_s, end=9), at=at(answered_s))
        marks.append(progress.watermark_ms)
        progress.heartbeat(800, at=at(4))
        progress.overtaken(800)

    assert marks == [NO_WATERMARK_MS, 800]


def test_heartbeat_waits_for_what_it_may_have_overtaken() -> None:
    """It counts a second after it came, if nothing older came since."""
    progress = KafkaProgress(9, end=9, at=at(0))
    marks = []

    progress.heartbeat(700, at=at(2))
    for answered_s in (2.9, 3.1):
        progress.look(poll(9, answered_s=answered_s, end=9), at=at(answered_s))
        marks.append(progress.watermark_ms)

    assert marks == [NO_WATERMARK_MS, 700]
