"""A sidecar for the commands to talk to.

Nothing of it is shared between tests.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.service.commands.fake_sidecar import FakeSidecar


@pytest.fixture
async def sidecar(tmp_path: Path) -> AsyncIterator[FakeSidecar]:
    """A fake that listens as long as the test runs."""
    async with FakeSidecar(tmp_path / "s.sock").listening() as listening:
        yield listening
