"""A dimension that is not configured is answered with those that are."""

import pytest
from yarl import URL

from tests.service.http.serving import Served


@pytest.mark.parametrize("name", ["customer", "%00", "..%2F..%2Fetc", "public.customers"])
async def test_unknown_dimensions_are_named(service: Served, name: str) -> None:
    """The caller is told which names there are; none of them is the database's."""
    async with service.unix.get(URL(f"/v1/dimensions/{name}", encoded=True)) as response:
        problem = await response.json()

    assert (response.status, problem["code"]) == (404, "unknown_dimension")
    assert problem["detail"].endswith("; configured: customers, weather")


async def test_long_names_are_not_echoed_whole(service: Served) -> None:
    """A name of thousands of characters does not come back as such."""
    async with service.unix.get(f"/v1/dimensions/{'a' * 5000}") as response:
        problem = await response.json()

    assert len(problem["detail"]) < 200
