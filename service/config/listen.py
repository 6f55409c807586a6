"""`listen`: addresses of the listeners, and their TLS."""

import os
from pathlib import Path
from typing import Annotated, Self

from pydantic import (
    Field,
    PlainSerializer,
    PlainValidator,
    ValidationInfo,
    field_validator,
    model_validator,
)

from service.config.host_port import HostPort, parse_host_port
from service.config.secrets import SecretFile
from service.config.section import Section, written
from service.tls.server_certificate import CertificateFiles, ServerCertificate, server_certificate


class ListenTls(Section):
    """What `listen.tls` holds."""

    cert_file: Path = Field(description="certificate of this server, and those that signed it, PEM")
    key_file: SecretFile = Field(description="its key, PEM, without a password")
    client_ca_file: Path | None = Field(
        default=None,
        description="authorities, PEM: whoever connects needs a certificate that they signed",
    )

    @model_validator(mode="after")
    def _is_fit_to_use(self) -> Self:
        self.certificate()
        return self

    def files(self) -> CertificateFiles:
        """The same for whoever listens."""
        return CertificateFiles(self.cert_file, self.key_file, self.client_ca_file)

    def certificate(self) -> ServerCertificate:
        """What the files hold now; raises ValueError."""
        return server_certificate(self.files())


MAX_SOCKET_PATH_BYTES = 107  # sun_path of Linux, without its end mark


Address = Annotated[
    HostPort,
    PlainValidator(parse_host_port, json_schema_input_type=str),
    PlainSerializer(str),
]


class Listen(Section):
    """The three ways in; `null` closes one. What else a way needs is seen by `exposed_listener`."""

    unix: Path | None = Field(
        default=Path("/run/sidelook/sidelook.sock"), description="Unix socket, mode 0660"
    )
    http: Address | None = Field(
        default=None,
        description="host:port; beyond loopback with TLS, and a token or client_ca_file",
    )
    tls: ListenTls | None = Field(
        default=None,
        description="TLS of listen.http; without it, plain HTTP",
        examples=[{"cert_file": "tls.crt", "key_file": "tls.key"}],
    )
    health: Address | None = written(
        "0.0.0.0:8816",
        description="host:port of /livez, /readyz, /startupz and /metrics, without lookups",
    )

    @field_validator("unix", mode="after")
    @classmethod
    def _can_be_bound(cls, unix: Path | None) -> Path | None:
        length = 0 if unix is None else len(os.fsencode(unix))
        if length > MAX_SOCKET_PATH_BYTES:
            raise ValueError(
                f"the path of a Unix socket has at most {MAX_SOCKET_PATH_BYTES} bytes, "
                f"and this one, made absolute, has {length}"
            )
        return unix

    @field_validator("http", mode="after")
    @classmethod
    def _is_some_way_in(cls, http: HostPort | None, info: ValidationInfo) -> HostPort | None:
        is_unix_off = "unix" in info.data and info.data["unix"] is None
        if http is None and is_unix_off:
            raise ValueError("nothing to listen on: give listen.unix or listen.http")
        return http

    @field_validator("tls", mode="after")
    @classmethod
    def _fits_the_address(cls, tls: ListenTls | None, info: ValidationInfo) -> ListenTls | None:
        if tls is None or "http" not in info.data:
            return tls
        http: HostPort | None = info.data["http"]
        if http is None:
            raise ValueError("has no effect without listen.http, as the other ways in have no TLS")
        certificate = tls.certificate()
        if not (http.is_address or certificate.is_for(http.host.lower())):
            raise ValueError(
                f"{tls.cert_file} is not for {http.host}, where listen.http is, but for "
                f"{', '.join(sorted(certificate.names))}; give one that is, or listen at an address"
            )
        return tls

    @field_validator("health", mode="after")
    @classmethod
    def _has_a_port_of_its_own(
        cls, health: HostPort | None, info: ValidationInfo
    ) -> HostPort | None:
        http = info.data.get("http")
        if health is not None and http is not None and health.collides_with(http):
            raise ValueError(f"takes the same port as listen.http ({http}); give it another one")
        return health
