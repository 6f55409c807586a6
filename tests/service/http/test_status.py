"""One answer has all that the status page shows, as the single routes tell it."""

from dataclasses import asdict, replace

from lookup_core.errors import BackendError, ErrorCode
from tests.service.http.serving import Served, Setting, served
from tests.service.http.test_channels import CHANNEL


async def test_dimensions_are_told_whole(service: Served) -> None:
    """Each dimension is told, sorted, as by its own route."""
    await service.lookup('{"keys": [1, 9]}')

    async with service.unix.get("/v1/status") as response:
        told = await response.json()
    async with service.unix.get("/v1/dimensions/customers") as response:
        single = await response.json()

    assert [each["name"] for each in told["dimensions"]] == ["customers", "weather"]
    assert told["dimensions"][0] | {"freshness": 0} == single | {"freshness": 0}
    assert (single["backend"]["queries"], single["backend"]["batch_keys"]) == (1, 2)
    assert (told["version"], told["is_draining"], told["not_ready"]) == ("1.2.3", False, {})


async def test_channels_are_told() -> None:
    """The open streams are those of their own route."""
    setting = Setting(change_parts=lambda parts: replace(parts, channels=lambda: [CHANNEL]))

    async with served(setting) as service, service.unix.get("/v1/status") as response:
        assert (await response.json())["channels"] == [asdict(CHANNEL)]


async def test_absent_dimension_is_named() -> None:
    """What is not ready is named with its reason."""
    error = BackendError(ErrorCode.TABLE_UNAVAILABLE, "no such table")
    setting = Setting(
        prepare=lambda backends: setattr(backends["weather"], "describe_error", error)
    )

    async with served(setting) as service, service.unix.get("/v1/status") as response:
        assert (await response.json())["not_ready"] == {"weather": "no such table"}


async def test_status_is_told_while_draining(service: Served) -> None:
    """People still see what goes on when no lookup is taken any more."""
    service.parts.readiness.start_draining()

    async with service.unix.get("/v1/status") as response:
        assert (response.status, (await response.json())["is_draining"]) == (200, True)


async def test_failures_stand_among_recent_errors(service: Served) -> None:
    """A failure is told with its code and counts, and without the key."""
    service.customers.fail_next(9, BackendError(ErrorCode.BACKEND_AUTH, "customers: no login"))
    await service.lookup('{"keys": [424242], "timeout_ms": 100}')

    async with service.unix.get("/v1/status") as response:
        text = await response.text()
        errors = (await response.json())["dimensions"][0]["recent_errors"]

    told = {error["code"]: error["detail"] for error in errors}
    assert told["backend_auth"] == "customers: no login"
    assert "424242" not in text
