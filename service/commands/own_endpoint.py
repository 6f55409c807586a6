"""Where the sidecar of a configuration is asked from its own machine, and by which name.

Not where it listens: that may be every address, and its certificate be for names only.
"""

import ipaddress
from dataclasses import dataclass, replace

from service.commands.endpoint import DEFAULT, UNIX
from service.config.host_port import HostPort
from service.config.listen_tls import ListenTls
from service.config.settings import Settings


@dataclass(frozen=True, slots=True)
class OwnEndpoint:
    """As --endpoint has it, and whom the certificate must be for, if not for its host."""

    text: str
    server_name: str | None = None


def own_endpoint(settings: Settings | None) -> OwnEndpoint:
    """The socket, if there is one; without a configuration the usual one."""
    if settings is None:
        return OwnEndpoint(DEFAULT)
    listen = settings.listen
    if listen.unix is not None or listen.http is None:
        return OwnEndpoint(f"{UNIX}{listen.unix}")
    http = listen.http
    if http.is_address and ipaddress.ip_address(http.host).is_unspecified:
        http = replace(http, host="::1" if ":" in http.host else "127.0.0.1")
    if listen.tls is None:
        return OwnEndpoint(f"http://{http}")
    return OwnEndpoint(f"https://{http}", _server_name(listen.tls, http))


def _server_name(tls: ListenTls, http: HostPort) -> str | None:
    """A name that callers ask for; of `*.domain` any name will do."""
    try:
        certificate = tls.certificate()
    except ValueError:  # replaced since the configuration was read
        return None
    if certificate.is_for(http.host.lower()):
        return None
    names = sorted(certificate.names, key=lambda name: (name.startswith("*."), name))
    return names[0].replace("*", "sidelook", 1)
