"""What most tests of a dimension start from."""

import pytest

from tests.lookup_core.dimension.scenario import Scenario


@pytest.fixture
def scenario() -> Scenario:
    """A dimension without retries."""
    return Scenario()
