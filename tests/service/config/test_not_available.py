"""Options that this version has a word for, and nothing else."""

import pytest

from service.config.not_available import not_available


@pytest.mark.parametrize("neutral", [None, 0.0, 0])
def test_neutral_value_passes(neutral: object) -> None:
    """An option that is left at its neutral value changes nothing, so it may stand there."""
    assert not_available(neutral, written="0")(neutral) is neutral


def test_other_values_are_refused() -> None:
    """An option that would have no effect stops the start."""
    with pytest.raises(ValueError, match=r"not available in this version; .* set it to 0s"):
        not_available(0.0, written="0s")(1.0)
