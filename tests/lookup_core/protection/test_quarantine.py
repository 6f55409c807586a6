"""Keys that are kept out for a while."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from lookup_core.protection.backend_guard import Quarantine

KEYS = list(range(8))


def test_key_is_kept_out_for_a_while() -> None:
    """For 30 s, then no longer; others never."""
    quarantine = Quarantine()
    quarantine.add(b"bad", 10.0)

    assert quarantine.is_in([b"good", b"bad"], 39.9).tolist() == [False, True]
    assert (quarantine.until(b"bad", 39.9), quarantine.until(b"good", 39.9)) == (40.0, None)
    assert quarantine.until(b"bad", 40.0) is None
    assert quarantine.is_in([b"bad"], 40.0).tolist() == [False]
    assert len(quarantine) == 0


def test_refusal_may_be_renewed() -> None:
    """A key that is refused once more is kept out from then on."""
    quarantine = Quarantine()
    quarantine.add(1, 0.0)
    quarantine.add(2, 10.0)
    quarantine.add(1, 20.0)

    assert quarantine.is_in([1, 2], 45.0).tolist() == [True, False]


def test_oldest_goes_first() -> None:
    """There is room for 10,000 keys; one more lets the oldest in again."""
    quarantine = Quarantine()
    for key in range(10_001):
        quarantine.add(key, 0.0)

    assert len(quarantine) == 10_000
    assert quarantine.is_in([0, 1, 10_000], 1.0).tolist() == [False, True, True]


def test_keys_can_be_let_in_again() -> None:
    """Single ones or all; a key that is not kept out does not matter."""
    quarantine = Quarantine()
    quarantine.remove([9])
    for key in (1, 2, 3):
        quarantine.add(key, 0.0)

    quarantine.remove([1, 9])
    assert quarantine.is_in([1, 2, 3], 1.0).tolist() == [False, True, True]
    quarantine.clear()
    assert quarantine.is_in([1, 2, 3], 1.0).tolist() == [False, False, False]


class QuarantineMachine(RuleBasedStateMachine):
    """Keys that are refused, let in and asked for while time goes by, against a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.quarantine = Quarantine()
        self.added: dict[int, float] = {}  # {key: when it was last refused}
        self.now = 0.0

    @rule(seconds=st.sampled_from([0.0, 1.0, 29.5, 30.0, 31.0]))
    def wait(self, seconds: float) -> None:
        """Time goes by."""
        self.now += seconds

    @rule(key=st.sampled_from(KEYS))
    def add(self, key: int) -> None:
        """The store refuses a key."""
        self.quarantine.add(key, self.now)
        self.added[key] = self.now

    @rule(keys=st.sets(st.sampled_from(KEYS)))
    def remove(self, keys: set[int]) -> None:
        """Keys are invalidated."""
        self.quarantine.remove(keys)
        for key in keys:
            self.added.pop(key, None)

    @rule()
    def clear(self) -> None:
        """All keys are invalidated."""
        self.quarantine.clear()
        self.added.clear()

    @rule()
    def ask(self) -> None:
        """Many keys are asked for at once; afterwards only those kept out take memory."""
        is_out = [key in self.added and self.now < self.added[key] + 30 for key in KEYS]

        assert self.quarantine.is_in(KEYS, self.now).tolist() == is_out
        assert len(self.quarantine) == sum(is_out)

    @invariant()
    def ends_are_those_of_the_model(self) -> None:
        """Each key is kept out for as long as since its last refusal, and no other is."""
        ends = {key: at + 30 for key, at in self.added.items() if self.now < at + 30}

        found = {key: self.quarantine.until(key, self.now) for key in KEYS}

        assert {key: until for key, until in found.items() if until is not None} == ends


TestModel = QuarantineMachine.TestCase
TestModel.settings = settings(max_examples=40, stateful_step_count=25)
