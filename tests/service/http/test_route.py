"""Who may call what is decided by the path, and for unknown paths as for data."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from service.http.security import Access, TokenFile
from tests.service.http.serving import Setting, served

OPEN = {"/", "/openapi.json", "/livez", "/readyz", "/startupz"}
NEED_A_TOKEN = {"/metrics", "/v1/dimensions", "/v1/channels", "/v1/stream", "/nowhere"}
STATUSES: Mapping[str, int] = {**dict.fromkeys(OPEN, 200), **dict.fromkeys(NEED_A_TOKEN, 401)}


@pytest.mark.parametrize(("path", "status"), sorted(STATUSES.items()))
async def test_paths_are_open_or_not(tmp_path: Path, path: str, status: int) -> None:
    """Probes and pages are for anyone; what could tell something needs the token."""
    (tmp_path / "token").write_text("secret")
    setting = Setting(access=Access(reader_token=TokenFile(tmp_path / "token")))

    async with served(setting) as service:
        await service.parts.dimensions["customers"].wait_until_described(1.0)
        await service.parts.dimensions["weather"].wait_until_described(1.0)
        async with service.tcp.get(path) as response:
            assert response.status == status
