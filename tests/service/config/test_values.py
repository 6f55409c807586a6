"""Single values of a configuration: which texts are taken, and as what."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from psycopg.pq import Conninfo
from pydantic import SecretStr

from service.config.host_port import HostPort, parse_host_port
from service.config.postgres_address import (
    ESCAPED,
    HOST,
    HOST_TWICE,
    LOGIN_TWICE,
    ONE_LINE,
    PARAMETERS,
    PASSFILE,
    PORT,
    PORTS,
    check_dsn,
    holds_password,
)
from service.config.quantity import count, duration, duration_text, factor, size, size_text
from service.config.settings import check_dimension_name
from service.config.tracing import check_endpoint, parse_headers

Parser = Callable[[Any], object]
Writer = Callable[[Any], str]

COUNT, FACTOR = count(1, 1000).parse, factor(1, 100).parse
ANY_DURATION, DURATION = duration().parse, duration("1ms", "1h").parse
SIZE, ANY_SIZE = size("1B", "1TiB").parse, size("0B", "1048576TiB").parse

TAKEN: list[tuple[Parser, object, object]] = [
    *[(COUNT, each, 1) for each in (1, "1", "0001")],
    *[(COUNT, each, 1000) for each in (1000, "1000", "0" * 14 + "1000")],
    *[(FACTOR, each, 2) for each in (2, "2")],
    *[(FACTOR, each, 1.5) for each in (1.5, "1.5")],
    *[(FACTOR, each, 100) for each in (100, "100")],
    (ANY_DURATION, "0ms", 0.0),
    (ANY_DURATION, "50ms", 0.05),
    (ANY_DURATION, "2s", 2.0),
    (ANY_DURATION, "10m", 600.0),
    (ANY_DURATION, "1h", 3600.0),
    (ANY_DURATION, "1.5d", 129_600.0),
    (ANY_DURATION, "365d", 31_536_000.0),
    (DURATION, "1ms", 0.001),
    (DURATION, "60m", 3600.0),
    (SIZE, "1B", 1),
    (SIZE, "2KiB", 2048),
    (SIZE, "1.5MiB", 1_572_864),
    (SIZE, "3GiB", 3 * 2**30),
    (SIZE, "1TiB", 2**40),
    (parse_host_port, "127.0.0.1:8815", HostPort("127.0.0.1", 8815)),
    (parse_host_port, "[::1]:0", HostPort("::1", 0)),
    (parse_host_port, "localhost:65535", HostPort("localhost", 65535)),
    (parse_host_port, "db-1.example:80", HostPort("db-1.example", 80)),
    (check_endpoint, "http://127.0.0.1:4318/", "http://127.0.0.1:4318"),
    (check_endpoint, "https://c/prefix", "https://c/prefix"),
    *[
        (check_dimension_name, name, name)
        for name in ("customers", "A", "9", "a_b", "a-b", "a.b", "a" * 63)
    ],
    *[
        (check_dsn, SecretStr(dsn), SecretStr(dsn))
        for dsn in (
            *("postgresql://u@h:5432/d", "postgres://h", "postgresql:///d?host=/run,i&port=1,2"),
            *("postgresql://u@h,[::1]:2/d?sslmode=allow", "postgresql://h/d?user=me@shop"),
            *(
                "postgresql://u:a%23%2F b%@h:65535/",
                "postgresql://%2Frun:1/d?options=-c%20jit%3Doff",
            ),
            "postgresql://u@h/d?sslmode=verify-full&target_session_attrs=read-write",
            "postgresql://u@h/d?connect_timeout=10&search_path=shop&statement_timeout=1s&a.b=c",
            "postgresql://u@h/d?sslmode=require&sslnegotiation=direct&client_encoding=UTF8",
        )
    ],
]

REFUSED: dict[str, tuple[Parser, list[Any]]] = {  # {fault: (parser, values)}
    "{:.40} is not a whole number from 1 to 1000": (
        COUNT,
        [
            *(True, None, 1.0, 0, -1, 1001, [], 10**400, "1.5", "-1", "+1", "", "one", "1_0", "0"),
            *("٣", "9" * 5000, "0" * 15 + "1000"),
        ],
    ),
    "{:.40} is not a number from 1 to 100": (
        FACTOR,
        [0.5, 101, math.inf, -math.inf, math.nan, "inf", "1.", ".5", "0.5", True],
    ),
    "{:.40} is not a duration from 1ms to 1h, written as a number and a unit (ms, s, m, h, d)": (
        DURATION,
        [
            *(5, 5.0, True, None, math.inf, [], "", "5", "s", "5 s", "5sec", "-5s", "+5s", "1e3s"),
            *(".5s", "5.s", "inf", "infs", "nan", "5S", "5s\n", "٥s", "2MB"),
            *("0s", "0.9ms", "61m", "99999999999d", f"{'9' * 400}s"),
        ],
    ),
    "{:.40} is not a size from 1B to 1TiB, "
    "written as a number and a unit (B, KiB, MiB, GiB, TiB)": (
        SIZE,
        ["0B", "1.1TiB", "2MB", "5s", "x" * 10_000],
    ),
    "{:.60} is not host:port, such as 127.0.0.1:8815 or [::1]:8815, with a port from 0 to 65535": (
        parse_host_port,
        [
            *(8815, None, "", "8815", ":8815", "localhost", "localhost:", "localhost:65536"),
            *("a b:1", "::1:80", "[zz]:80", "[1.2.3.4]:80", "localhost:-1", "http://a:80"),
            *("localhost:8\n", "-a:80", "a" * 254 + ":80"),
        ],
    ),
    "is not a valid name: up to 63 letters, digits, '.', '-' and single '_' between them": (
        check_dimension_name,
        ["", "_a", "a_", "a__b", "a b", "a/b", "..", "-a", "ä", "a\n", "a" * 64],
    ),
}


def short(value: object) -> str:
    """The value in a test's name."""
    return getattr(value, "__qualname__", repr(value))[:30]


@pytest.mark.parametrize(("parse", "written", "expected"), TAKEN, ids=short)
def test_value_is_parsed(parse: Parser, written: object, expected: object) -> None:
    """A value arrives in its base unit and type; texts are taken, as the environment has no other.

    A count and a size are whole numbers.
    """
    parsed = parse(written)

    assert (parsed, type(parsed)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("fault", "parse", "written"),
    [(fault, parse, each) for fault, (parse, values) in REFUSED.items() for each in values],
    ids=short,
)
def test_value_is_refused(fault: str, parse: Parser, written: object) -> None:
    """Another form, or a value out of range, is refused with the form and range that are taken.

    Of a long value only the beginning is shown.
    """
    with pytest.raises(ValueError, match="not") as raised:
        parse(written)

    is_null = written is None and "host:port" not in fault  # no such key is null
    assert str(raised.value) == fault.format("null" if is_null else repr(written))


@pytest.mark.parametrize(
    ("write", "parse", "texts"),
    [
        (duration_text, ANY_DURATION, ["0ms", "1ms", "1500ms", "2s", "90s", "10m", "36h", "7d"]),
        (size_text, ANY_SIZE, ["0B", "1B", "1023B", "1536MiB", "1GiB", "1048576TiB"]),
        (str, parse_host_port, ["127.0.0.1:8815", "[::1]:0", "localhost:65535"]),
    ],
    ids=["durations", "sizes", "addresses"],
)
def test_values_are_written_as_read(write: Writer, parse: Parser, texts: list[str]) -> None:
    """A value in a message has the form of the file; a size has the largest unit that is exact."""
    assert [write(parse(text)) for text in texts] == texts


@pytest.mark.parametrize(
    ("other", "is_loopback", "collides"),
    [
        *[(host, True, False) for host in ("127.8.8.8:1", "[::1]:1", "localhost:1", "LOCALHOST:1")],
        *[(host, False, False) for host in ("10.0.0.1:1", "example:1", "localhost.example:1")],
        *[(host, False, True) for host in ("0.0.0.0:1", "[::]:1")],
        ("127.0.0.1:1", True, True),
        ("127.0.0.1:2", True, False),
    ],
)
def test_address_may_be_local_or_taken(*, other: str, is_loopback: bool, collides: bool) -> None:
    """A wildcard or another name is not certain to be local; a wildcard takes a port of all."""
    one, address = parse_host_port("127.0.0.1:1"), parse_host_port(other)

    assert (address.is_loopback, address.collides_with(one)) == (is_loopback, collides)
    assert one.collides_with(address) is collides
    assert not parse_host_port("127.0.0.1:0").collides_with(parse_host_port("127.0.0.1:0"))


REFUSED_DSNS = {  # {fault: addresses}
    "not a PostgreSQL address, such as postgresql://user@host:5432/database": [
        *("", "host=h password=geheim", "mysql://u:geheim@h/d", "postgresql:u:geheim@h/d"),
        "postgresql://u:geheim@[h/d",
    ],
    ONE_LINE: [
        *("postgresql://u:geheim@h/d\npostgresql://v@h/d", "postgresql://u:geheim@h/d\r\nx"),
        *(" postgresql://u:geheim@h/d", "postgresql://u:geh\0eim@h/d", "postgresql://u:%00@h/d"),
    ],
    ESCAPED: [
        *(f"postgresql://u:{mark}geheim@h:1/d" for mark in ("#", "/", "?", "1?", "@", "[", "]")),
        *("postgresql://u:geheim@h/a@b", "postgresql://u:1?a=b@h/d?sslmode=c", "postgres://h/d#"),
    ],
    HOST: [
        *("postgresql://u:geheim@h,,i/d", "postgresql://u:geheim@:1/d", "postgresql://u@[::1]x/d"),
        *("postgresql://u:geheim@h..example/d", f"postgresql://u:geheim@{'h' * 64}/d"),
        *(
            "postgresql:///d?host=a,,b",
            "postgresql:///d?host=/run,::1",
            "postgresql:///d?host=a..b",
            "postgresql://u@a,b:1,2,3/d",
        ),
    ],
    PORT: [
        *("postgresql://u:geheim@h:99999/d", "postgresql://u:geheim@h:0/d", "postgresql://u@h:a/d"),
        *("postgresql://u@h,i:65536", "postgresql://[::1]:-1/d", "postgresql://u@h:٣/d"),
        *(
            "postgresql://h/d?port=99999",
            "postgresql:///d?host=a,b&port=1,",
            "postgresql://u:geheim",
        ),
    ],
    HOST_TWICE: ["postgresql://u:geheim@h/d?port=1", "postgresql://h/d?host=i"],
    LOGIN_TWICE: [
        *(
            "postgresql://h/d?dbname=e",
            "postgresql://h/?dbname=e",
            "postgresql://h?dbname=e&database=e",
        ),
        *("postgresql://u:geheim@h/d?user=v", "postgresql://u:geheim@h/d?password=other"),
    ],
    "has sslmode twice; write it once": [
        "postgresql://u:geheim@h/d?sslmode=verify-full&sslmode=disable",
    ],
    PORTS: ["postgresql:///d?host=/run&port=1,2", "postgresql:///d?port=1,2"],
    PARAMETERS: ["postgresql://u:geheim@h/d?sslmode", "postgresql://u:geheim@h/d?a=b&&c"],
    "has an unknown sslmode; set disable, allow, prefer, require, verify-ca or verify-full": [
        "postgresql://u:geheim@h/d?sslmode=bogus",
    ],
    "has an unknown target_session_attrs; set any, primary, standby, read-write, read-only or "
    "prefer-standby": ["postgresql://u:geheim@h/d?target_session_attrs=master"],
    "has an unknown gsslib; set gssapi": ["postgresql://u:geheim@h/d?gsslib=sspi"],
    "has an unknown connect_timeout; set whole seconds from 1 to 600": [
        f"postgresql://u:geheim@h/d?connect_timeout={each}" for each in ("0", "-1", "1.5", "601")
    ],
    "has keepalives_idle, which only libpq supports; remove it: the timeout of a dimension ends a "
    "query on a dead connection": ["postgresql://u:geheim@h/d?a.b=c&keepalives_idle=5"],
    "has channel_binding, which only libpq supports; remove it; sslmode=verify-full authenticates "
    "the server": ["postgresql://u:geheim@h/d?channel_binding=require"],
    "has sslrootcert=system, which only libpq supports; name the file of the authorities": [
        "postgresql://u:geheim@h/d?sslmode=verify-full&sslrootcert=system"
    ],
    "has sslnegotiation=direct, which needs sslmode require, verify-ca or verify-full": [
        "postgresql://u:geheim@h/d?sslmode=prefer&sslnegotiation=direct"
    ],
}


@pytest.mark.parametrize(
    ("fault", "dsn"), [(fault, dsn) for fault, dsns in REFUSED_DSNS.items() for dsn in dsns]
)
def test_refused_addresses_are_not_shown(fault: str, dsn: str) -> None:
    """The fault has a remedy; neither it nor its cause shows the address, with its password."""
    with pytest.raises(ValueError, match=r"^(not|has)") as raised:
        check_dsn(SecretStr(dsn))

    assert str(raised.value) == fault
    assert raised.value.__suppress_context__ or raised.value.__context__ is None


@pytest.mark.parametrize(
    "hosts",
    [
        *(f"%2Fcloudsql%2F{'p' * 30}%3Aeurope-west1%3A{'i' * 30}", "%2Frun%2F..%2Fa.b,%2Ftmp:2"),
        *(
            "pg-0.ns.svc.cluster.local.,pg-1.ns.svc.cluster.local.",
            "pg-0.local.:1,[::1]:2,10.0.0.1",
        ),
        *(f"{'h' * 63}:5432", f"{'h' * 63},{'i' * 60}.example:5432", "münchen.example:1"),
    ],
)
def test_hosts_in_each_form_are_accepted(hosts: str) -> None:
    """Folders of sockets, absolute names, labels of 63 characters and IPv6, alone or in lists."""
    assert not fault_of(f"postgresql://u:p@{hosts}/d")


def test_ignored_files_are_faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that is not found, or a password file that is not private, would be ignored."""
    services, passwords = tmp_path / "services", tmp_path / "passwords"
    monkeypatch.setenv("PGSERVICEFILE", str(services))
    of_a, of_b = "postgresql://?service=a", "postgresql://?service=b"
    of_passwords = f"postgresql://u@h/d?passfile={passwords}"
    gap = "(no such file, or it may not be read); correct its name, or set PGSERVICEFILE"
    unknown = f"has a service that {services} does not have {gap}"
    malformed = f"has a service, but {services} is malformed (InterpolationSyntaxError); write %% "

    assert [fault_of(of_a), fault_of(of_passwords)] == [unknown, PASSFILE]
    services.write_text("[a]\nhost=h\npassword=%%\n[b]\npassword=%\n")
    passwords.write_text("*:*:*:*:geheim")
    passwords.chmod(0o640)
    assert [fault_of(of_a), fault_of(of_b)] == ["", f"{malformed}for %"]
    assert fault_of(of_passwords) == PASSFILE
    passwords.chmod(0o600)
    assert not fault_of(of_passwords)


def test_settings_of_libpq_only_are_faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the driver ignores in a service, or in the environment, is named with the remedy."""
    services = tmp_path / "services"
    services.write_text("[a]\nhost=h\noptions=-csearch_path=b\nhostaddr=::1\n[b]\nhost=h\n")
    monkeypatch.setenv("PGSERVICEFILE", str(services))
    of_a, of_b = "postgresql://?service=a", "postgresql://?service=b"
    ignored = "has a service with hostaddr, options, which only libpq reads there; write it into"

    assert [fault_of(of_a), fault_of(of_b)] == [f"{ignored} the DSN", ""]
    monkeypatch.setenv("PGOPTIONS", "-csearch_path=b")
    variable = "would ignore PGOPTIONS, which only libpq reads; unset it, and write options"
    assert fault_of(of_b) == variable


OF_ASYNCPG = (
    *("user", "password", "dbname", "host", "port", "krbsrvname"),
    *("sslcert", "sslkey", "sslpassword", "sslrootcert", "sslcrl"),
)


def test_parameters_of_libpq_are_known() -> None:
    """The server gets no parameter of libpq as a setting: each is supported, removed or refused."""
    keywords = [each.keyword.decode() for each in Conninfo.get_defaults()]
    passing = {name for name in keywords if not fault_of(f"postgresql://?{name}=9")}

    assert passing == {*OF_ASYNCPG, "connect_timeout", "options", "application_name"}
    assert all(name in fault_of(f"postgresql://?{name}=9") for name in {*keywords} - passing)


def fault_of(dsn: str) -> str:
    """The fault of an address, empty without one."""
    try:
        check_dsn(SecretStr(dsn))
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("dsns", "is_found"),
    [
        (["postgresql://u:p@h/d", "postgresql://h/d?user=u&password=p", "postgres://:p@h"], True),
        (["postgresql://u@h/d?sslkey=k&sslpassword=p"], True),
        (["postgresql://u@h/d?PASSWORD=p", "postgresql://u@h/d?SslPassword=p"], True),
        (["postgresql://u:@/d?host=/tmp", "postgresql://u@h/p", "postgresql://[h", ""], False),
    ],
)
def test_passwords_are_found(*, dsns: list[str], is_found: bool) -> None:
    """A password is before the host or a parameter; an empty one does not count."""
    assert {holds_password(dsn) for dsn in dsns} == {is_found}


def test_headers_are_lines() -> None:
    """White space around names and values is ignored; a value may contain colons."""
    assert parse_headers("authorization: Bearer a:b\nx-scope :  me ") == {
        "authorization": "Bearer a:b",
        "x-scope": "me",
    }
    for wrong in ("Bearer abc", ": value", "name:", "na me: value"):
        with pytest.raises(ValueError, match=r"^line 2 is not `name: value`, as in"):
            parse_headers(f"x: 1\n{wrong}")
