"""`listen`: addresses and TLS of the listeners."""

import os
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, PlainSerializer, PlainValidator, model_validator

from service.config.host_port import HostPort, parse_host_port
from service.config.secrets import SecretFile
from service.config.section import FilePath, Given, Section, rule, written
from service.tls.server_certificate import CertificateFiles, ServerCertificate, server_certificate

MAX_SOCKET_PATH_BYTES = 107  # Linux: sun_path without its final NUL


class ListenTls(Section):
    """TLS of `listen.http`; without this section, it uses plain HTTP.

    Changed files are read within 10 s.
    """

    cert_file: FilePath
    """PEM file with the certificate of the sidecar and intermediate certificates."""
    key_file: SecretFile
    """PEM file with the private key of the certificate, without a password."""
    client_ca_file: FilePath | None = None
    """PEM file with CA certificates. Clients then need a certificate that one of these CAs
    signed."""

    @model_validator(mode="after")
    def _is_fit_to_use(self) -> Self:
        self.certificate()
        return self

    def files(self) -> CertificateFiles:
        """Return the files for the listener."""
        return CertificateFiles(self.cert_file, self.key_file, self.client_ca_file)

    def certificate(self) -> ServerCertificate:
        """Read the files; raises ValueError for unusable ones."""
        return server_certificate(self.files())


Address = Annotated[
    HostPort,
    PlainValidator(parse_host_port, json_schema_input_type=str),
    PlainSerializer(str),
]


class Listen(Section):
    """Addresses of the listeners. `null` closes a listener."""

    unix: FilePath | None = Path("/run/sidelook/sidelook.sock")
    """Unix socket for lookups, created with mode 0660. Its folder must exist."""
    http: Address | None = None
    """`host:port` for lookups by TCP. Beyond loopback it needs `listen.tls`, and `auth.token_file`
    or `listen.tls.client_ca_file`."""
    tls: ListenTls | None = Field(
        default=None, examples=[{"cert_file": "tls.crt", "key_file": "tls.key"}]
    )
    """TLS of `listen.http`. `null`: plain HTTP."""
    health: Address | None = written("0.0.0.0:8816")
    """`host:port` of `/livez`, `/readyz`, `/startupz` and `/metrics`. This listener serves no
    lookups."""

    @rule("unix")
    def _can_be_bound(cls, unix: Path | None, _given: Given) -> None:
        length = 0 if unix is None else len(os.fsencode(unix))
        if length > MAX_SOCKET_PATH_BYTES:
            raise ValueError(
                f"the absolute path has {length} bytes; a Unix socket's path has at most "
                f"{MAX_SOCKET_PATH_BYTES}"
            )

    @rule("http")
    def _is_some_listener(cls, http: HostPort | None, given: Given) -> None:
        is_unix_off = "unix" in given and given["unix"] is None
        if http is None and is_unix_off:
            raise ValueError("there is no listener for lookups: set listen.unix or listen.http")

    @rule("tls")
    def _fits_the_address(cls, tls: ListenTls | None, given: Given) -> None:
        if tls is None or "http" not in given:
            return
        http: HostPort | None = given["http"]
        if http is None:
            raise ValueError("has no effect without listen.http: other listeners have no TLS")
        certificate = tls.certificate()
        if not (http.is_address or certificate.is_for(http.host.lower())):
            raise ValueError(
                f"{tls.cert_file} is not valid for {http.host} of listen.http, but for "
                f"{', '.join(sorted(certificate.names))}; set another certificate, or an IP address"
            )

    @rule("health")
    def _has_a_port_of_its_own(cls, health: HostPort | None, given: Given) -> None:
        http = given.get("http")
        if health is not None and http is not None and health.collides_with(http):
            raise ValueError(f"uses the same port as listen.http ({http}); set another one")
