"""A backend around another one; what is made of its rows stands in tests of those that do."""

import pytest

from lookup_core.errors import BackendError, ErrorCode
from service.connectors.ports.several_rows import AroundBackend
from tests.service.engine.running import customers

DOWN = BackendError(ErrorCode.BACKEND_UNAVAILABLE, "customers: down")


async def test_backend_within_is_asked() -> None:
    """Whether it lives, and how it finds keys, is for it to say."""
    store = customers()
    async with AroundBackend(store) as around:
        await around.probe(timeout_s=1.0)
        store.probe_error = DOWN

        with pytest.raises(BackendError) as caught:
            await around.probe(timeout_s=1.0)

    assert (caught.value, store.probes_total, around.uses_index) == (DOWN, 2, True)
