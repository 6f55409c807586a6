"""What sessions are started with, and what is never shown."""

from dataclasses import replace

from service.backends.postgres_settings import PostgresSettings

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
