"""What a TCP listener that other machines reach must have, and whether it does.

Says nothing about who listens on loopback, where the pod is the border.
"""

from service.config.auth import Auth
from service.config.listen import Listen


def missing_protection(listen: Listen, auth: Auth) -> str | None:
    """What is to be set before lookups may be served there; None: nothing."""
    http, tls = listen.http, listen.tls
    if http is None or http.is_loopback:
        return None
    if tls is not None and (tls.client_ca_file is not None or auth.token_file is not None):
        return None
    if tls is not None:
        return "auth.token_file, or listen.tls.client_ca_file"
    if auth.token_file is not None:
        return "listen.tls"
    return "listen.tls and auth.token_file, or listen.tls with its client_ca_file"
