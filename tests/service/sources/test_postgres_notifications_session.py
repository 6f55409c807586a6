"""A session that listens, where no server answers; `tests/integration` has one that does."""

import asyncio
import socket

import pytest

from lookup_core.dimension_schema import TableOrigin
from lookup_core.errors import BackendError, ErrorCode
from service.connectors.postgres.notifications_session import (
    PostgresNotificationsSession,
    PostgresNotificationsSettings,
)
from service.connectors.postgres.triggers import PostgresNotificationsTriggers, trigger_names
from tests.grace import GRACE_S


async def failure_of(dsn: str, *, timeout_s: float = 3.0) -> BackendError:
    """What opening a session ends with."""
    heard: list[str | int] = []
    settings = PostgresNotificationsSettings(dsn, "t", "changes", connect_timeout_s=timeout_s)
    names = trigger_names("t", ["id"], channel="changes")
    triggers = PostgresNotificationsTriggers(
        TableOrigin("public", "t"), names, script="gen-triggers d"
    )
    session = PostgresNotificationsSession(
        settings, triggers, hear=heard.append, on_end=heard.clear
    )
    with pytest.raises(BackendError) as failure:
        await session.__aenter__()
    assert heard == []
    return failure.value


@pytest.mark.parametrize(
    ("dsn", "reason"),
    [
        ("postgresql://127.0.0.1:1/shop", "nothing listens at the address of the DSN"),
        ("postgresql:///shop?host=/nowhere", "there is no Unix socket at the place that the DSN"),
        ("mysql://h", "the DSN is malformed"),
    ],
)
async def test_unreachable_servers_are_errors(dsn: str, reason: str) -> None:
    """An address that leads nowhere is told in the words that lookups have for it."""
    failure = await failure_of(dsn)

    assert failure.code is ErrorCode.BACKEND_UNAVAILABLE
    assert failure.detail.startswith(f"t: {reason}")


async def test_silent_servers_are_given_up() -> None:
    """Where connections are accepted and nothing is said, the connect timeout ends it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        started_at = asyncio.get_running_loop().time()
        failure = await failure_of(f"postgresql://127.0.0.1:{port}/shop", timeout_s=0.1)

    assert failure.detail == "t: no connection in time"
    assert asyncio.get_running_loop().time() - started_at < 0.1 + GRACE_S


def test_settings_keep_their_secret() -> None:
    """A DSN, which may hold a password, is not shown with the settings."""
    settings = PostgresNotificationsSettings("postgresql://u:secret@h/d", "t", "changes")

    assert "secret" not in repr(settings)


def test_sessions_end_with_their_heartbeats() -> None:
    """The server's own limit for a heartbeat is that of the sidecar."""
    settings = PostgresNotificationsSettings("", "t", "changes", heartbeat_timeout_s=0.25)

    assert settings.server_settings["statement_timeout"] == "250ms"
    assert settings.server_settings["application_name"] == "sidelook listen"
