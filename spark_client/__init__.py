"""Lookup joins for PySpark through a sidecar; importing this starts no thread and no connection.

from spark_client import Sidecar

sidecar = Sidecar("unix:///run/sidelook/sidelook.sock")
enriched = events.transform(sidecar.lookup_join("customers", on="customer_id"))
"""

from lookup_core.errors import (
    BackendError,
    ConfigurationError,
    InvalidRequest,
    LookupFailed,
    ProtocolViolation,
    SidecarUnreachable,
    SidelookError,
)

try:
    from spark_client.driver.sidecar import Sidecar
except ModuleNotFoundError as error:
    if error.name not in {"pyspark", "py4j", "distutils"}:  # the last one until PySpark 4.0
        raise
    remedy = "install a PySpark for this Python: pip install 'sidelook[spark]'"
    message = f"spark_client needs PySpark: {error}; {remedy}"
    raise ImportError(message) from error

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
