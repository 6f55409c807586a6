"""Lookup joins for PySpark through a sidecar: the public Python API, `spark_client`'s.

from sidelook import Sidecar

sidecar = Sidecar("unix:///run/sidelook/sidelook.sock")
enriched = events.transform(sidecar.lookup_join("customers", on="customer_id"))
"""

from spark_client import (
    BackendError,
    ConfigurationError,
    InvalidRequest,
    LookupFailed,
    ProtocolViolation,
    Sidecar,
    SidecarUnreachable,
    SidelookError,
)

__all__ = [
    "BackendError",
    "ConfigurationError",
    "InvalidRequest",
    "LookupFailed",
    "ProtocolViolation",
    "Sidecar",
    "SidecarUnreachable",
    "SidelookError",
]
