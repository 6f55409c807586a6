"""PostgreSQL addresses and the passwords in them."""

import pytest
from pydantic import SecretStr

from service.config.secrets import check_dsn, holds_password


@pytest.mark.parametrize(
    "dsn", ["postgresql://u@h:5432/d", "postgres://h", "postgresql://u@h1:1,h2:2/d?sslmode=require"]
)
def test_postgres_addresses_are_taken(dsn: str) -> None:
    """Both of PostgreSQL's schemes are taken, with several hosts, too."""
    assert check_dsn(SecretStr(dsn)).get_secret_value() == dsn


@pytest.mark.parametrize(
    "dsn", ["", "host=h password=geheim", "mysql://u:geheim@h/d", "postgresql://u:geheim@[h/d"]
)
def test_other_addresses_are_not_shown(dsn: str) -> None:
    """What is no address is refused without its text, in the message and in its causes."""
    with pytest.raises(ValueError, match="not a PostgreSQL address") as raised:
        check_dsn(SecretStr(dsn))

    assert "geheim" not in str(raised.value)
    assert raised.value.__suppress_context__ or raised.value.__context__ is None


@pytest.mark.parametrize(
    "dsn", ["postgresql://u:p@h/d", "postgresql://h/d?user=u&password=p", "postgres://:p@h"]
)
def test_passwords_are_found(dsn: str) -> None:
    """A password is one before the host and among the parameters."""
    assert holds_password(dsn)


@pytest.mark.parametrize(
    "dsn", ["postgresql://postgres:@/d?host=/tmp", "postgresql://u@h/p", "postgresql://[h", ""]
)
def test_empty_passwords_are_none(dsn: str) -> None:
    """An empty password is no secret."""
    assert not holds_password(dsn)
