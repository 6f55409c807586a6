"""`tracing`: OpenTelemetry collector, and the share of traced requests."""

import re
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from service.config.quantity import factor
from service.config.secrets import SecretFile
from service.config.section import FilePath, Section
from service.file_identity import read_secret

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110


def check_endpoint(endpoint: str) -> str:
    """Return the URL without a final slash; raises ValueError for other URLs."""
    wanted = "is not http://host:port or https://host:port"
    try:
        parts = urlsplit(endpoint)
        is_address = parts.scheme in {"http", "https"} and bool(parts.hostname)
        _ = parts.port  # raises ValueError for other ports
    except ValueError as error:
        raise ValueError(wanted) from error
    if not is_address or parts.query or parts.fragment:
        raise ValueError(wanted)
    if parts.username is not None or parts.password is not None:
        raise ValueError("contains a secret; move it to tracing.headers_file")
    return endpoint.rstrip("/")


def parse_headers(text: str) -> dict[str, str]:
    """Parse one `name: value` a line; raises ValueError for other lines."""
    headers = {}
    for number, line in enumerate(text.splitlines(), start=1):
        name, colon, value = line.partition(":")
        if not (colon and _HEADER_NAME.fullmatch(name.strip()) and value.strip()):
            raise ValueError(f"line {number} is not `name: value`, as in `authorization: Bearer …`")
        headers[name.strip()] = value.strip()
    return headers


class Tracing(Section):
    """Export of spans to an OpenTelemetry collector, by OTLP over HTTP."""

    endpoint: Annotated[str, AfterValidator(check_endpoint)] | None = None
    """`http://host:port` or `https://host:port` of the collector; the sidecar appends `/v1/traces`.
    `null`: no tracing."""
    sample_ratio: Annotated[float, factor(0, 1)] = 0.01
    """Share of traced requests. It applies to requests without a trace context; the sampling
    decision of a caller's trace context is kept."""
    service_name: str = Field(default="sidelook", min_length=1, max_length=255)
    """Resource attribute `service.name` of the spans."""
    headers_file: SecretFile | None = None
    """File with headers for the collector, one `name: value` per line, such as a token. Each export
    reads it again."""
    ca_file: FilePath | None = None
    """PEM file with the CA certificates for an https endpoint. `null`: those of the system."""

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if self.endpoint is None and (self.headers_file or self.ca_file):
            raise ValueError("headers_file and ca_file need an endpoint")
        if self.headers_file is not None:
            parse_headers(read_secret(self.headers_file))
        if self.ca_file is not None and not self.ca_file.is_file():
            raise ValueError(f"ca_file: {self.ca_file} is not a file")
        return self
