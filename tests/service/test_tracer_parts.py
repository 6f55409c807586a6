"""The tracer that a configuration asks for, and what it knows of the stores."""

from service.config.settings import Settings
from service.engine.tracer import NullTracer
from service.instruments import opened_tracer, stores
from service.observability.tracing import OpenTelemetryTracer
from tests.service.config.configuration import AIRPORTS, CUSTOMERS, MINIMAL

NOBODY = "http://127.0.0.1:9"  # nothing is sent there, as nothing is followed


async def test_nothing_is_traced_without_an_endpoint() -> None:
    """The default is a tracer that follows nothing."""
    async with opened_tracer(Settings(MINIMAL), version="1") as tracer:
        assert isinstance(tracer, NullTracer)


async def test_endpoint_is_what_switches_it_on() -> None:
    """With one there are spans."""
    settings = Settings({"tracing": {"endpoint": NOBODY}}, MINIMAL)

    async with opened_tracer(settings, version="1") as tracer:
        assert isinstance(tracer, OpenTelemetryTracer)


def test_stores_are_named_as_they_are_configured() -> None:
    """A table is the collection of a PostgreSQL; a file is no database."""
    settings = Settings({"dimensions": {"customers": CUSTOMERS, "airports": AIRPORTS}})

    assert stores(settings) == {
        "airports": {},
        "customers": {
            "db.system.name": "postgresql",
            "db.operation.name": "SELECT",
            "db.collection.name": "public.customers",
        },
    }
