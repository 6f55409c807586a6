"""Why a listener cannot be bound, as a fault of the configuration.

Not for Unix sockets, which have locks and folders to speak of: see `service.http.unix_socket`.
"""

import errno
import os

from lookup_core.errors import ConfigurationError


def bind_fault(setting: str, where: str, error: OSError) -> ConfigurationError:
    """The error for a setting whose address the system refuses, with the remedy if it is known."""
    number = error.errno or 0  # names that do not resolve have negative ones
    reason = os.strerror(number) if number > 0 else error.strerror or str(error)
    if error.errno == errno.EADDRINUSE:
        reason += f"; another process listens there: stop it, or set {setting} to another port"
    return ConfigurationError([f"{setting}: {where}: {reason}"])
