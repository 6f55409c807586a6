"""Questions about one dimension."""

import pytest

from lookup_core.errors import BackendError, ErrorCode
from service.commands.endpoint import parse_endpoint
from service.commands.key_arguments import KeyField
from service.commands.sidecar_client import DimensionClient, SidecarClient
from tests.service.commands.fake_sidecar import FakeSidecar


async def test_each_question_has_its_path(sidecar: FakeSidecar) -> None:
    """Name and key are one segment of the path each, whatever stands in them."""
    async with SidecarClient(parse_endpoint(f"unix://{sidecar.socket}"), token=None) as client:
        weather = DimensionClient(client, "weather")
        fields = await weather.key_fields()
        await weather.lookup([["JFK", 5]])
        await weather.explain(["a/b", 5])
        await DimensionClient(client, "a/b").invalidate(None)

    assert fields == [KeyField("faa", "string"), KeyField("hour", "int64")]
    assert sidecar.asked == [
        ("/v1/dimensions/weather/lookup", [["JFK", 5]]),
        ("/v1/dimensions/weather/explain/a%2Fb,5", None),
        ("/v1/dimensions/a%2Fb/invalidate", {"all": True}),
    ]


async def test_dimension_without_a_key_is_unavailable(sidecar: FakeSidecar) -> None:
    """Why it has no key yet is told, with its code."""
    async with SidecarClient(parse_endpoint(f"unix://{sidecar.socket}"), token=None) as client:
        with pytest.raises(BackendError) as caught:
            await DimensionClient(client, "down").key_fields()

    assert (caught.value.code, caught.value.detail) == (ErrorCode.TABLE_UNAVAILABLE, "no table x")
