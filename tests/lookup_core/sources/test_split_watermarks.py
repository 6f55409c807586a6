"""The watermark of a dimension, and which of its splits are idle."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from lookup_core.sources.split_watermarks import SplitWatermarks
from lookup_core.watermark_valve import NO_WATERMARK_MS, ChannelTime

IDLE_AFTER_S = 5.0


def watermarks_of(*split_ids: str) -> SplitWatermarks:
    """These splits, come at 0 s."""
    watermarks = SplitWatermarks(IDLE_AFTER_S)
    for split_id in split_ids:
        watermarks.add(split_id, 0.0)
    return watermarks


def tell(
    watermarks: SplitWatermarks,
    split_id: str,
    watermark_ms: int = NO_WATERMARK_MS,
    *,
    now: float = 0.0,
    is_caught_up: bool = True,
) -> None:
    """A piece of a split, without changes."""
    watermarks.on_piece(
        split_id, watermark_ms=watermark_ms, has_changes=False, is_caught_up=is_caught_up, now=now
    )


def test_slowest_split_sets_the_watermark() -> None:
    """The merged watermark is the least, and there is none before all have told one."""
    watermarks = watermarks_of("a", "b")
    tell(watermarks, "a", 100)
    before = watermarks.watermark_ms
    tell(watermarks, "b", 50)

    assert (before, watermarks.watermark_ms) == (NO_WATERMARK_MS, 50)
    assert watermarks.active_ms() == {"a": 100, "b": 50}


def test_silent_split_holds_nobody_back() -> None:
    """Caught up and without news for 5 s, a split is idle; a moment earlier it is not."""
    watermarks = watermarks_of("a", "b")
    tell(watermarks, "b", now=0.0)
    tell(watermarks, "a", 100, now=4.0)

    assert watermarks.next_deadline() == 5.0
    watermarks.expire(4.9)
    assert (watermarks.watermark_ms, watermarks.active_ms()) == (
        NO_WATERMARK_MS,
        {"a": 100, "b": NO_WATERMARK_MS},
    )
    watermarks.expire(5.0)
    assert (watermarks.watermark_ms, watermarks.active_ms()) == (100, {"a": 100})
    assert watermarks.next_deadline() == 9.0


def test_split_that_is_behind_is_never_idle() -> None:
    """However long it is silent: what it has not told yet may be old."""
    watermarks = watermarks_of("a")
    tell(watermarks, "a", 100, is_caught_up=False)

    watermarks.expire(1e6)
    assert (watermarks.is_idle, watermarks.next_deadline()) == (False, None)


def test_signs_of_life_are_no_news() -> None:
    """A piece without changes and without a new watermark leaves an idle split idle."""
    watermarks = watermarks_of("a")
    tell(watermarks, "a", 100, now=0.0)
    tell(watermarks, "a", 100, now=4.0)
    watermarks.expire(5.0)
    tell(watermarks, "a", 100, now=6.0)

    assert (watermarks.is_idle, watermarks.watermark_ms) == (True, 100)
    assert watermarks.next_deadline() is None


def test_news_make_a_split_active() -> None:
    """A change does, also one of the same event time, and so does a later watermark."""
    watermarks = watermarks_of("a")
    tell(watermarks, "a", 100)
    watermarks.expire(5.0)
    watermarks.on_piece("a", watermark_ms=100, has_changes=True, is_caught_up=True, now=6.0)
    with_change = watermarks.is_idle
    watermarks.expire(11.0)
    tell(watermarks, "a", 200, now=12.0)

    assert (with_change, watermarks.is_idle, watermarks.watermark_ms) == (False, False, 200)
    assert watermarks.next_deadline() == 17.0


def test_failed_split_is_not_idle() -> None:
    """Nobody knows what it holds, until it is read up to its end again."""
    watermarks = watermarks_of("a")
    tell(watermarks, "a", 100)
    watermarks.expire(5.0)
    watermarks.on_failure("a")
    watermarks.expire(1e6)
    away = watermarks.time_of("a")
    tell(watermarks, "a", 100, now=1e6)
    watermarks.expire(1e6)

    assert away == ChannelTime(100, is_idle=False, is_aligned=True)
    assert watermarks.time_of("a") == ChannelTime(100, is_idle=True, is_aligned=False)


def test_paused_split_is_not_silent() -> None:
    """Its silence begins when its pause is over."""
    watermarks = watermarks_of("a")
    tell(watermarks, "a", 100)

    watermarks.expire(5.0, paused={"a"})
    assert (watermarks.is_idle, watermarks.next_deadline()) == (False, 10.0)
    watermarks.expire(10.0)
    assert watermarks.is_idle


def test_finished_split_holds_nobody_back() -> None:
    """What has gone is not waited for, nor known any more; going twice is harmless."""
    watermarks = watermarks_of("a", "b")
    tell(watermarks, "a", 100)
    watermarks.remove("b")
    watermarks.remove("b")
    watermarks.add("a", 9.0)

    assert (watermarks.watermark_ms, watermarks.time_of("b")) == (100, None)
    assert watermarks.active_ms() == {"a": 100}


class SplitWatermarksMachine(RuleBasedStateMachine):
    """Splits that come, tell, fail and go, against what is known of each by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.watermarks = SplitWatermarks(IDLE_AFTER_S)
        self.now = 0.0
        self.caught_up_since: dict[str, float | None] = {}  # {split: last news, if caught up}
        self.news_at: dict[str, float] = {}
        self.watermark_ms = NO_WATERMARK_MS

    @rule(split_id=st.sampled_from("abc"))
    def add(self, split_id: str) -> None:
        """A split comes."""
        self.watermarks.add(split_id, self.now)
        self.news_at.setdefault(split_id, self.now)
        self.caught_up_since.setdefault(split_id, None)

    @rule(split_id=st.sampled_from("abc"))
    def remove(self, split_id: str) -> None:
        """A split goes."""
        self.watermarks.remove(split_id)
        self.news_at.pop(split_id, None)
        self.caught_up_since.pop(split_id, None)

    @rule(
        split_id=st.sampled_from("abc"),
        watermark_ms=st.integers(0, 9),
        has_changes=st.booleans(),
        is_caught_up=st.booleans(),
    )
    def tell(
        self, split_id: str, watermark_ms: int, *, has_changes: bool, is_caught_up: bool
    ) -> None:
        """A split that is there tells something."""
        known = self.watermarks.time_of(split_id)
        if known is None:
            return
        if has_changes or watermark_ms > known.watermark_ms:
            self.news_at[split_id] = self.now
        self.caught_up_since[split_id] = self.news_at[split_id] if is_caught_up else None
        self.watermarks.on_piece(
            split_id,
            watermark_ms=watermark_ms,
            has_changes=has_changes,
            is_caught_up=is_caught_up,
            now=self.now,
        )

    @rule(split_id=st.sampled_from("abc"))
    def fail(self, split_id: str) -> None:
        """A split that is there fails."""
        if split_id in self.news_at:
            self.watermarks.on_failure(split_id)
            self.caught_up_since[split_id] = None

    @rule(seconds=st.sampled_from([0.5, 2.0, 5.0]))
    def expire(self, seconds: float) -> None:
        """Time goes by: exactly those are idle that are caught up and were silent for 5 s."""
        self.now += seconds
        self.watermarks.expire(self.now)
        active = {
            split_id
            for split_id, since in self.caught_up_since.items()
            if since is None or since + IDLE_AFTER_S > self.now
        }
        assert set(self.watermarks.active_ms()) == active

    @invariant()
    def never_goes_back(self) -> None:
        """The merged watermark only grows, and a deadline lies ahead of whoever may fall idle."""
        self.watermarks.check_invariants()
        assert self.watermarks.watermark_ms >= self.watermark_ms
        self.watermark_ms = self.watermarks.watermark_ms


TestSplitWatermarksModel = SplitWatermarksMachine.TestCase
