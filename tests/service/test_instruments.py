"""What the service is watched with shows what its instruments have seen."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from service.engine.tracer import NullTracer
from service.http.readiness import Readiness
from service.instruments import Instruments
from service.observability.event_loop import EventLoopLag
from service.observability.prometheus_observer import PrometheusObserver
from service.resources.memory_guard import MemoryGuard, Relief
from service.resources.memory_reading import MemoryReading
from service.stream.channel_registry import ChannelRegistry
from service.stream.handler import StreamHandler


@pytest.fixture
def instruments() -> Instruments:
    """Of a process with 300 bytes that is not asked for anything yet."""
    guard = MemoryGuard(
        lambda: MemoryReading(300),
        Relief(lambda _: None, lambda _: None, lambda _: None),
        limit_bytes=1_000_000,
        is_settled=lambda: True,
    )
    return Instruments(PrometheusObserver(), NullTracer(), EventLoopLag(), guard, certificate=None)


def test_vitals_are_those_that_were_seen(instruments: Instruments) -> None:
    """Memory is what the guard has read last, and unknown before."""
    vitals = instruments.vitals(1_000_000)
    told = [vitals.told()["memory"]["resident_bytes"]]
    instruments.guard.look()
    told.append(vitals.told()["memory"]["resident_bytes"])

    assert told == [None, 300]


def test_metrics_of_all_instruments_are_exposed(instruments: Instruments) -> None:
    """In one text: of the process, of streams and of lookups; none of a certificate without one."""
    streams = StreamHandler(
        ChannelRegistry({}, max_channels=1, credit_bytes=1000),
        agent="sidelook",
        max_message_bytes=1000,
        answer_bytes=1000,
    )
    instruments.guard.look()

    text = instruments.exposition({}, Readiness({}), streams).render().decode()

    families = {family.name: family.samples for family in text_string_to_metric_families(text)}
    assert families["sidelook_memory_resident_bytes"][0].value == 300
    assert {"sidelook_channels", "sidelook_lookup_seconds"} <= families.keys()
    assert not families["sidelook_tls_certificate_expiry_seconds"]
