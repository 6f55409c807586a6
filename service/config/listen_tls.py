"""TLS of the TCP listener: the files of its certificate, and of whose callers it lets in.

The files are looked into when the configuration is read; that they change is seen by whoever
listens.
"""

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from service.config.secret_file import SecretFile
from service.config.section import Section
from service.tls.certificate_files import CertificateFiles
from service.tls.server_certificate import ServerCertificate, server_certificate


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
