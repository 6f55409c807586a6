"""Fixtures of the commands: a sidecar to query, and the printed text."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.service.commands.fake_sidecar import FakeSidecar


@pytest.fixture
async def sidecar(tmp_path: Path) -> AsyncIterator[FakeSidecar]:
    """A fake sidecar that listens as long as the test runs."""
    async with FakeSidecar(tmp_path / "s.sock").listening() as listening:
        yield listening
