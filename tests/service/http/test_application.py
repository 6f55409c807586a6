"""Every route answers its methods, on the listeners that it belongs to, with the same headers."""

import pytest

from tests.service.http.raw_http import exchanged
from tests.service.http.serving import Served


async def test_head_is_answered_like_get(service: Served) -> None:
    """A HEAD has the headers of the GET and no body."""
    async with service.unix.head("/v1/dimensions") as response:
        assert (response.status, response.content_type) == (200, "application/json")
        assert await response.read() == b""


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/v1/dimensions", "GET,HEAD"),
        ("GET", "/v1/dimensions/customers/lookup", "POST"),
        ("OPTIONS", "/livez", "GET,HEAD"),
    ],
)
async def test_wrong_methods_name_the_right_ones(
    service: Served, method: str, path: str, allowed: str
) -> None:
    """A method that the path does not have is a 405 with `Allow`."""
    async with service.unix.request(method, path) as response:
        problem = await response.json()

    assert (response.status, problem["code"]) == (405, "method_not_allowed")
    assert response.headers["Allow"] == allowed


@pytest.mark.parametrize(
    "path", ["/v1", "/v1/dimensions/", "/v1/dimensions/customers/1", "/etc/passwd", "/livez/x"]
)
async def test_unknown_paths_are_problems(service: Served, path: str) -> None:
    """A path that does not exist is a problem like any other, and tells where paths are."""
    async with service.unix.get(path) as response:
        problem = await response.json()

    assert (response.status, problem["code"]) == (404, "not_found")
    assert response.content_type == "application/problem+json"
    assert problem["detail"] == (
        "no such path; rows are at /v1/dimensions/{name}/rows/{key}, all paths in /openapi.json"
    )


@pytest.mark.parametrize("path", ["/livez", "/v1/dimensions", "/nowhere"])
async def test_headers_are_the_same_everywhere(service: Served, path: str) -> None:
    """No answer is stored or sniffed, and none tells the server's version."""
    async with service.unix.get(path) as response:
        headers = response.headers

    assert headers["Server"] == "sidelook"
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("path", ["/", "/openapi.json", "/v1/dimensions", "/v1/stream"])
async def test_health_listener_has_no_data(service: Served, path: str) -> None:
    """What listens beyond loopback shows probes and metrics, and nothing else."""
    async with service.health.get(path) as response:
        problem = await response.json()

    assert (response.status, problem["detail"]) == (
        404,
        "probes and metrics only; lookups are taken at listen.unix and listen.http",
    )


@pytest.mark.parametrize(
    ("target", "statuses"),
    [
        ("/v1/dimensions/../../../etc/passwd", {404}),
        ("/v1/dimensions/%2e%2e/%2e%2e/etc", {404}),
        ("http://169.254.169.254/latest/meta-data", {421}),
        ("*", {400}),
        ("//etc/passwd", {404, 421}),
    ],
)
async def test_strange_targets_lead_nowhere(
    service: Served, target: str, statuses: set[int]
) -> None:
    """No form of a target reaches a file or makes the service ask another one."""
    answer = await exchanged(
        service, f"GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
    )

    assert int(answer.split()[1]) in statuses
