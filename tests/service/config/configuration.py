"""A configuration with as little in it as can be, and the faults of others.

Not a test.
"""

from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import ValidationError

from service.config.dimension import DimensionConfig
from service.config.fault_lines import fault_lines
from service.config.settings import Settings

AIRPORTS = {"source": {"kind": "parquet", "path": "/data/airports.parquet"}, "key": ["faa"]}
POSTGRES = {"kind": "postgres", "table": "public.customers", "dsn": "postgresql://h/shop"}
CUSTOMERS = {"source": POSTGRES, "key": ["id"]}
MINIMAL = {"dimensions": {"airports": AIRPORTS}}


def dimension(**values: object) -> DimensionConfig:
    """The dimension with these values over the minimal ones."""
    return Settings({"dimensions": {"airports": AIRPORTS | values}}).dimensions["airports"]


def faults(values: Mapping[str, Any]) -> list[str]:
    """What is wrong with these values over the minimal ones."""
    with pytest.raises(ValidationError) as raised:
        Settings(values, MINIMAL)
    return list(fault_lines(raised.value, Settings, origins={}))


def dimension_faults(**values: object) -> list[str]:
    """What is wrong with these values of a dimension, without the way to it."""
    found = faults({"dimensions": {"airports": values}})
    return [fault.removeprefix("dimensions.airports.") for fault in found]


def table(**values: object) -> DimensionConfig:
    """A dimension in PostgreSQL with these values over the minimal ones."""
    return Settings({"dimensions": {"customers": CUSTOMERS | values}}).dimensions["customers"]


def table_faults(**values: object) -> list[str]:
    """What is wrong with these values of one, without the way to it."""
    found = faults({"dimensions": {"customers": CUSTOMERS | values}})
    return [fault.removeprefix("dimensions.customers.") for fault in found]
