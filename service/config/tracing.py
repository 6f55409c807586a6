"""Where the spans of requests and queries are sent, and of how many of them.

Nothing is connected or imported for it here; without an endpoint nothing is traced.
"""

import re
from pathlib import Path
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from service.config.quantity import factor
from service.config.secrets import SecretFile, read_secret
from service.config.section import Section

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # of a header, by RFC 9110


def check_endpoint(endpoint: str) -> str:
    """The same address without a slash at its end; raises ValueError for what is none."""
    wanted = "is not http://host:port or https://host:port of a collector"
    try:
        parts = urlsplit(endpoint)
        is_address = parts.scheme in {"http", "https"} and bool(parts.hostname)
        _ = parts.port  # raises for what is no port
    except ValueError as error:
        raise ValueError(wanted) from error
    if not is_address or parts.query or parts.fragment:
        raise ValueError(wanted)
    if parts.username is not None or parts.password is not None:
        raise ValueError("holds a secret; put it into tracing.headers_file")
    return endpoint.rstrip("/")


def parse_headers(text: str) -> dict[str, str]:
    """The headers that stand there, one `name: value` a line; raises ValueError for others."""
    headers = {}
    for number, line in enumerate(text.splitlines(), start=1):
        name, colon, value = line.partition(":")
        if not (colon and _NAME.fullmatch(name.strip()) and value.strip()):
            raise ValueError(f"line {number} is not `name: value`, as in `authorization: Bearer …`")
        headers[name.strip()] = value.strip()
    return headers


class Tracing(Section):
    """An OpenTelemetry collector that takes OTLP over HTTP; off without an endpoint."""

    endpoint: Annotated[str, AfterValidator(check_endpoint)] | None = Field(
        default=None, description="http(s)://host:port of the collector; /v1/traces is appended"
    )
    sample_ratio: Annotated[float, factor(0, 1)] = Field(
        default=0.01,
        description="share of the requests that are followed, of those without a trace",
    )
    service_name: str = Field(default="sidelook", min_length=1, max_length=255)
    headers_file: SecretFile | None = Field(
        default=None, description="headers for the collector, one `name: value` a line"
    )
    ca_file: Path | None = Field(
        default=None, description="whom an https endpoint is believed; the system's without it"
    )

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if self.endpoint is None and (self.headers_file or self.ca_file):
            raise ValueError("headers_file and ca_file need an endpoint")
        if self.headers_file is not None:
            parse_headers(read_secret(self.headers_file))
        if self.ca_file is not None and not self.ca_file.is_file():
            raise ValueError(f"ca_file: {self.ca_file} is not a file")
        return self
