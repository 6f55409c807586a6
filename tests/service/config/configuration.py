"""Builders of small configurations, and the faults of wrong ones."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from service.config.dimension import DimensionConfig
from service.config.fault_lines import fault_lines
from service.config.settings import Settings
from service.config.yaml_document import parse_yaml_document

EXAMPLES = Path(__file__).parents[3] / "examples"
AIRPORTS = {"source": {"kind": "parquet", "path": "/data/airports.parquet"}, "key": ["faa"]}
POSTGRES = {"kind": "postgres", "table": "public.customers", "dsn": "postgresql://h/shop"}
CUSTOMERS = {"source": POSTGRES, "key": ["id"]}
CHANGELOG = {"brokers": ["kafka:9092"], "topic": "shop.customers", "format": "upsert_json"}
MINIMAL = {"dimensions": {"airports": AIRPORTS}}


def parsed(text: str) -> Mapping[str, Any]:
    """The values of a YAML document."""
    return parse_yaml_document(text).values


def dimension(**values: object) -> DimensionConfig:
    """A dimension in a Parquet file, with these values over the minimal ones."""
    return Settings({"dimensions": {"airports": AIRPORTS | values}}).dimensions["airports"]


def table(**values: object) -> DimensionConfig:
    """A dimension in PostgreSQL, with these values over the minimal ones."""
    return Settings({"dimensions": {"customers": CUSTOMERS | values}}).dimensions["customers"]


def faults(values: Mapping[str, Any]) -> list[str]:
    """The faults of these values over the minimal ones."""
    with pytest.raises(ValidationError) as raised:
        Settings(values, MINIMAL)
    return list(fault_lines(raised.value, Settings, origins={}))


def dimension_faults(**values: object) -> list[str]:
    """The faults of these values of a Parquet dimension, without its path."""
    found = faults({"dimensions": {"airports": values}})
    return [fault.removeprefix("dimensions.airports.") for fault in found]


def table_faults(**values: object) -> list[str]:
    """The faults of these values of a PostgreSQL dimension, without its path."""
    found = faults({"dimensions": {"customers": CUSTOMERS | values}})
    return [fault.removeprefix("dimensions.customers.") for fault in found]
