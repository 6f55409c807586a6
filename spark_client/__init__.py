"""Lookup joins for PySpark through a sidecar; importing this starts no thread and no connection.

from spark_client import Sidecar

sidecar = Sidecar("unix:///run/sidelook/sidelook.sock")
enriched = events.transform(sidecar.lookup_join("customers", on="customer_id"))
"""

from lookup_core.errors import (
    BackendError,
    InvalidRequest,
    LookupFailed,
    ProtocolViolation,
    SidecarUnreachable,
    SidelookError,
)
from spark_client.sidecar import Sidecar

__all__ = [
    "BackendError",
    "InvalidRequest",
    "LookupFailed",
    "ProtocolViolation",
    "Sidecar",
    "SidecarUnreachable",
    "SidelookError",
]
