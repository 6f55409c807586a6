"""Access control by Host, Origin, token and process owner; paths, methods and headers."""

import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from lookup_core.bearer_token import FORM
from service.http.routes.openapi import openapi_document
from service.http.security import Access, TokenFile
from tests.service.http.serving import JSON_TYPE, ONE, Served, Setting, exchanged, served

ROW = f"{ONE}/rows/1"
READER, ADMIN = {"Authorization": "Bearer reader"}, {"Authorization": "Bearer admin"}
NOT_FOUND = "no such path; rows are at /v1/dimensions/{name}/rows/{key}, all paths in /openapi.json"


# Hosts and origins


@pytest.mark.parametrize(
    ("host", "status"),
    [
        (b"localhost", b"200"),
        (b"LOCALHOST:8815", b"200"),
        (b"127.0.0.1:1", b"200"),
        (b"[::1]:8815", b"200"),
        (b"evil.example", b"421"),
        (b"localhost.evil.example", b"421"),
        (b"169.254.169.254", b"421"),
        (b"", b"421"),
    ],
)
async def test_host_must_be_known_on_tcp(service: Served, host: bytes, status: bytes) -> None:
    """A page with a name that resolves to loopback is refused (DNS rebinding)."""
    request = b"GET /livez HTTP/1.1\r\nHost: " + host + b"\r\nConnection: close\r\n\r\n"

    assert (await exchanged(service, request)).split()[1] == status
    assert (await service.get("/livez", headers={"Host": "anything"})).status == 200  # unix


@pytest.mark.parametrize("path", ["/livez", "/v1/dimensions", "/nowhere", "/"])
@pytest.mark.parametrize("method", ["GET", "OPTIONS"])
async def test_web_pages_are_refused(service: Served, method: str, path: str) -> None:
    """A request with an Origin comes from a page; preflights get no CORS headers."""
    headers = {"Origin": "http://localhost:8815", "Access-Control-Request-Method": "GET"}

    for over in ("tcp", "unix", "health"):
        reply = await service.get(path, over=over, method=method, headers=headers)
        assert reply.problem == (403, "origin_refused")
        assert [name for name in reply.headers if name.startswith("Access-Control")] == []


@pytest.mark.parametrize(
    ("site", "path", "status"),
    [
        ("cross-site", "/v1/dimensions", 403),
        ("cross-site", "/", 200),
        ("same-origin", "/v1/dimensions", 200),
        ("none", "/v1/dimensions", 200),
    ],
)
async def test_other_sites_load_no_figures(
    service: Served, site: str, path: str, status: int
) -> None:
    """Embedded requests of other sites have no Origin, but are refused by Sec-Fetch-Site."""
    headers = {"Sec-Fetch-Site": site}

    assert (await service.get(path, over="tcp", headers=headers)).status == status


@pytest.mark.parametrize(
    ("headers", "status"),
    [({"Origin": "http://evil.example"}, 403), ({"Host": "evil.example"}, 421), ({}, 200)],
)
async def test_cached_rows_pass_the_same_rules(
    service: Served, headers: Mapping[str, str], status: int
) -> None:
    """Repeated rows are checked like others; the admission limit is checked before access."""
    before = [(await service.get(ROW, over="tcp")).status for _ in range(3)]
    checked = (await service.get(ROW, over="tcp", headers=headers)).status
    service.parts.readiness.allow_requests(is_allowed=False)
    without_memory = (await service.get(ROW, over="tcp", headers=headers)).status

    assert (before, checked, without_memory) == ([200] * 3, status, 503)


# Tokens


@asynccontextmanager
async def guarded(folder: Path, *, has_admin: bool = True) -> AsyncIterator[Served]:
    """A service with a reader token and, on request, an admin token."""
    for name in ("reader", "admin"):
        (folder / name).write_text(name)
    admin = TokenFile(folder / "admin") if has_admin else None
    access = Access(None, TokenFile(folder / "reader"), admin)
    async with served(Setting(access=access)) as service:
        await service.described()
        yield service


async def invalidate(service: Served, over: str, headers: Mapping[str, str]) -> int:
    """The status of an invalidation."""
    sent = {**JSON_TYPE, **headers}
    path = f"{ONE}/invalidate"
    return (
        await service.get(path, over=over, method="POST", headers=sent, data='{"all": true}')
    ).status


PUBLIC = ("/", "/openapi.json", "/livez", "/readyz", "/startupz")


def test_document_names_the_tokens() -> None:
    """The OpenAPI document has no token for public paths, and the admin token for changes."""
    paths = openapi_document("1.2.3")["paths"]
    tokens = {
        path: tuple(each for option in operation["security"] for each in option)
        for path, item in paths.items()
        for operation in item.values()
        if "security" in operation
    }

    one = "/v1/dimensions/{name}"
    changes = dict.fromkeys((f"{one}/invalidate", f"{one}/reload"), ("admin_token",))
    assert tokens == {**dict.fromkeys(PUBLIC, ()), **changes}


async def test_paths_need_the_readers_token(tmp_path: Path) -> None:
    """Probes, page and document are public; all other paths, unknown ones too, need a token."""
    is_open = dict.fromkeys(PUBLIC, 200)
    guarded_paths = (
        "/metrics",
        "/v1/dimensions",
        "/v1/channels",
        "/v1/status",
        "/v1/status/history",
        "/v1/stream",
        ROW,
    )
    async with guarded(tmp_path) as service:
        for headers in (READER, ADMIN):
            assert (await service.get(ROW, over="tcp", headers=headers)).status == 200
        for path, status in {**is_open, **dict.fromkeys([*guarded_paths, "/nowhere"], 401)}.items():
            assert (await service.get(path, over="tcp")).status == status
            assert (await service.get(path)).status == status
        for path in guarded_paths:
            assert (await service.get(path, over="tcp", headers=READER)).status != 401


async def test_wrong_tokens_get_the_same_answer(tmp_path: Path) -> None:
    """A missing, wrong or huge token has one reply; the log has the peer, not the token."""
    wrong = ["Bearer wrong", "Basic reader", "reader", "Bearer", "Bearer " + "a" * 8000]
    with capture_logs() as logs:
        async with guarded(tmp_path) as service:
            replies = [
                await service.get("/v1/dimensions", over="tcp", headers=headers)
                for headers in [{}, *({"Authorization": each} for each in wrong)]
            ]

    assert {(each.problem, each.headers["WWW-Authenticate"], each.body) for each in replies} == {
        ((401, "unauthorized"), "Bearer", replies[0].body)
    }
    assert replies[0].json["detail"] == "this needs a valid token"
    refusals = [line for line in logs if line["event"] == "http.unauthorized"]
    assert {(line["code"], line["peer"]) for line in refusals} == {("unauthorized", "127.0.0.1")}
    assert "wrong" not in str(logs)


@pytest.mark.parametrize(
    ("has_admin", "over", "headers", "status"),
    [
        (True, "tcp", {}, 401),
        (True, "tcp", READER, 401),
        (True, "tcp", ADMIN, 200),
        (True, "unix", READER, 401),
        (True, "unix", ADMIN, 200),
        (False, "unix", {}, 401),
        (False, "unix", READER, 200),
        (False, "tcp", READER, 401),
    ],
)
async def test_admin_routes_need_admin_or_owner(
    tmp_path: Path, over: str, headers: Mapping[str, str], status: int, *, has_admin: bool
) -> None:
    """With an admin token only that token may change state."""
    async with guarded(tmp_path, has_admin=has_admin) as service:
        assert await invalidate(service, over, headers) == status


async def test_owner_needs_no_token(service: Served) -> None:
    """Without any token the owner of the process may change state, over the Unix socket only."""
    assert await invalidate(service, "unix", {}) == 200
    assert await invalidate(service, "tcp", {}) == 401


@pytest.fixture
def token_path(tmp_path: Path) -> Path:
    """A file with the token `secret` and a final newline."""
    path = tmp_path / "token"
    path.write_text("secret\n")
    return path


@pytest.mark.parametrize("presented", ["secre", "secret ", "SECRET", "", "a" * 8000, "\udcff"])
def test_only_the_token_matches(token_path: Path, presented: str) -> None:
    """Only the token matches, whatever the header contains."""
    token = TokenFile(token_path)

    assert (token.matches("secret"), token.matches(presented)) == (True, False)


def test_rotated_token_counts_at_once(tmp_path: Path, token_path: Path) -> None:
    """A changed file, and a swapped symbolic link as in Kubernetes, are read at once."""
    link = tmp_path / "link"
    link.symlink_to(token_path)
    token = TokenFile(link)
    assert token.matches("secret")
    token_path.write_text("rotated")
    changed = (token.matches("secret"), token.matches("rotated"))
    (tmp_path / "other").write_text("another")  # of the same size and time
    os.utime(tmp_path / "other", ns=(0, token_path.stat().st_mtime_ns))
    (tmp_path / "next").symlink_to(tmp_path / "other")
    (tmp_path / "next").rename(link)

    assert changed == (False, True)
    assert (token.matches("rotated"), token.matches("another")) == (False, True)


def link_to_fifo(path: Path) -> None:
    """A link, as in Kubernetes, to a FIFO."""
    path.unlink()
    os.mkfifo(path.with_name("pipe"))
    path.symlink_to("pipe")


SPOILED: list[tuple[Callable[[Path], object], str]] = [
    (Path.unlink, "cannot be read (No such file or directory)"),
    (lambda path: path.write_text(" \n"), "is empty"),
    (lambda path: path.write_bytes(b"\xff"), "is not ASCII text"),
    (lambda path: path.write_text("secret\nnext"), "has several lines or control characters"),
    (link_to_fifo, "cannot be read (not a regular file)"),
]


@pytest.mark.parametrize(("spoil", "reason"), SPOILED)
@pytest.mark.parametrize("silent_s", [5.0, 15.0], ids=["in use", "long unused"])
def test_unusable_token_stops_being_valid(
    token_path: Path, spoil: Callable[[Path], object], reason: str, silent_s: float
) -> None:
    """The last token is valid for 10 s after the file was last usable; each change is logged once.

    The warnings have the file, the reason and the remedy.
    """
    now_s = [0.0]
    token = TokenFile(token_path, clock=lambda: now_s[0])
    assert token.matches("secret")
    good = token_path.with_name("good")
    good.write_text("secret")
    spoil(token_path)

    with capture_logs() as logs:
        matches = []
        for now_s[0] in (silent_s, 10.0 + silent_s):
            matches.append((token.matches("secret"), token.matches("")))
        good.rename(token_path)
        is_back = (token.matches("secret"), token.fault())

    is_in_use = silent_s == 5.0
    assert (matches, is_back) == ([(is_in_use, False), (False, False)], (True, None))
    fault = f"auth.token_file: {token_path} {reason}; {{}}: {FORM}"
    effects = ["its last token is valid for 10 s"] * is_in_use + ["no token is valid"]
    assert [line.get("detail") for line in logs] == [*map(fault.format, effects), None]
    assert [line["log_level"] for line in logs] == [*["warning"] * len(effects), "info"]


async def test_unusable_tokens_are_a_reason(service: Served, token_path: Path) -> None:
    """Status and probe name an unusable token file; one of the admin does not end readiness."""
    await service.described()
    admin, readiness = token_path.with_name("admin"), service.parts.readiness
    readiness.admin_token = TokenFile(admin, "auth.admin_token_file")
    replies = [await service.get("/readyz", over="health")]
    readiness.reader_token = TokenFile(token_path)
    replies.append(await service.get("/readyz", over="health"))
    readiness.reader_token = TokenFile(token_path.with_name("none"))
    replies.append(await service.get("/readyz", over="health"))
    health = (await service.get("/v1/status")).json["health"]

    assert [each.status for each in replies] == [200, 200, 503]
    faults = [each["text"] for each in health["reasons"]]
    assert health["state"] == "degraded"
    assert [each.partition(":")[0] for each in faults] == [
        *("auth.token_file", "auth.admin_token_file"),
    ]
    assert replies[-1].json["detail"] == faults[0]


@pytest.mark.parametrize("content", ["", "\n", None])
def test_nothing_matches_without_a_token(tmp_path: Path, content: str | None) -> None:
    """An empty or missing file lets no request in."""
    path = tmp_path / "token"
    if content is not None:
        path.write_text(content)

    assert not TokenFile(path).matches("")


# Paths, methods and headers


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/v1/dimensions", "GET,HEAD"),
        ("GET", f"{ONE}/lookup", "POST"),
        ("OPTIONS", "/livez", "GET,HEAD"),
    ],
)
async def test_wrong_method_names_the_right_ones(
    service: Served, method: str, path: str, allowed: str
) -> None:
    """A method that a path does not have is a 405 with `Allow`."""
    reply = await service.get(path, method=method)

    assert reply.problem == (405, "method_not_allowed")
    assert reply.headers["Allow"] == allowed


@pytest.mark.parametrize(
    ("target", "statuses"),
    [
        ("/v1", {404}),
        ("/v1/dimensions/", {404}),
        ("/livez/x", {404}),
        ("/v1/dimensions/../../../etc/passwd", {404}),
        ("/v1/dimensions/%2e%2e/%2e%2e/etc", {404}),
        ("http://169.254.169.254/latest/meta-data", {421}),
        ("*", {400}),
        ("//etc/passwd", {404, 421}),
    ],
)
async def test_unknown_target_is_a_problem(
    service: Served, target: str, statuses: set[int]
) -> None:
    """No request target reaches a file or another host; a 404 refers to the document."""
    answer = await exchanged(
        service, f"GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
    )

    status = int(answer.split()[1])
    assert status in statuses
    assert (NOT_FOUND.encode() in answer) == (status == 404)


@pytest.mark.parametrize("path", ["/", "/openapi.json", "/v1/dimensions", "/v1/stream"])
async def test_health_listener_has_no_data(service: Served, path: str) -> None:
    """The health listener has probes and metrics only."""
    reply = await service.get(path, over="health")

    assert (reply.status, reply.json["detail"]) == (
        404,
        "probes and metrics only; lookups are served at listen.unix and listen.http",
    )


@pytest.mark.parametrize("path", ["/livez", "/v1/dimensions", "/nowhere"])
async def test_every_answer_has_the_fixed_headers(service: Served, path: str) -> None:
    """No reply may be stored or sniffed, or names a version; HEAD is GET without a body."""
    replies = [await service.get(path, method=method) for method in ("GET", "HEAD")]

    fixed = [("Server", "sidelook"), ("Cache-Control", "no-store")]
    fixed += [("X-Content-Type-Options", "nosniff")]
    assert [[(name, each.headers[name]) for name, _ in fixed] for each in replies] == [fixed] * 2
    assert len({each.status for each in replies}) == 1
    assert replies[1].body == b""
