"""What sessions are started with, and what is never shown."""

from dataclasses import replace

import pytest

from service.connectors.postgres.settings import PostgresSettings

SETTINGS = PostgresSettings("postgresql://user:secret@db/shop", "public.customers", ("id",))


def test_sessions_start_with_their_bounds() -> None:
    """Each session ends its statements by itself, and tells who it is; read-only is for later."""
    settings = replace(SETTINGS, statement_timeout_s=0.25)

    assert settings.server_settings == {
        "application_name": "sidelook",
        "statement_timeout": "250ms",
        "jit": "off",
        "row_security": "off",
    }


def test_timeout_is_never_rounded_to_none() -> None:
    """A tiny statement timeout stays one: 0 would mean that there is none."""
    settings = replace(SETTINGS, statement_timeout_s=0.0001)

    assert settings.server_settings["statement_timeout"] == "1ms"


def test_pgbouncer_gets_what_it_tracks() -> None:
    """Behind PgBouncer there are no session parameters of ours, and no prepared statements."""
    settings = replace(SETTINGS, pgbouncer=True)

    assert settings.server_settings == {"application_name": "sidelook"}
    assert settings.statement_cache_size == 0


def test_password_is_not_printed() -> None:
    """The settings may be logged: they do not show the DSN."""
    assert "secret" not in repr(SETTINGS)


@pytest.mark.parametrize(
    ("dsn", "address"),
    [
        ("postgresql://user:secret@db:5432/shop?sslmode=require", "db:5432"),
        ("postgres://db", "db"),
        ("postgresql://u@a:1,b.example:2/shop", "a:1,b.example:2"),
        ("postgresql://u:secret@[::1]:5432", "[::1]:5432"),
        ("postgresql://u@/shop?host=/run", ""),
    ],
)
def test_address_is_host_and_port(dsn: str, address: str) -> None:
    """Where the server is may be told: without user, password and database."""
    assert replace(SETTINGS, dsn=dsn).address == address


@pytest.mark.parametrize("mark", "/?#@")
def test_marks_in_passwords_hide_the_address(mark: str) -> None:
    """A password that is not quoted as it must be is not taken for a host."""
    assert replace(SETTINGS, dsn=f"postgresql://user:1{mark}2@db/shop").address == ""
