"""Test jobs without a sidecar and without a database.

from sidelook.testing import FakeDimension, FakeSidecar

with FakeSidecar({"customers": FakeDimension([{"id": 7, "name": "Ada"}], key="id")}) as dims:
    enriched = orders.transform(dims.lookup_join("customers", on="customer"))
"""

from spark_client.testing import FakeDimension, FakeSidecar

__all__ = ["FakeDimension", "FakeSidecar"]
