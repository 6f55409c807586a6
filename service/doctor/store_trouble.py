"""What an error of a store means to who runs the sidecar: the reason, and a remedy of its own.

The reasons are those of the adapters; only remedies that they do not name stand here.
"""

from lookup_core.errors import BackendError, ErrorCode
from service.doctor.finding import Finding, Matter

_REMEDIES = {
    ErrorCode.UPSTREAM_UNAVAILABLE: "see that it runs, and that address, TLS and firewalls fit",
    ErrorCode.CONNECTION_LOST: "see that it runs, and that nothing between cuts connections",
    ErrorCode.TIMEOUT: "see that it is not overloaded, and that no lock is held on the table",
    ErrorCode.UPSTREAM_AUTH: "correct user and password in the secret, or the server's rules",
    ErrorCode.FORBIDDEN: "give the sidecar's user the right to read it",
    ErrorCode.TABLE_UNAVAILABLE: "correct the name in the configuration, or create it",
}
_HIDDEN_ROWS = "row-level security"  # the adapter's words; the name is right then
# The service refuses it whatever the policies say: a row that one hides would look missing.
_HIDDEN_ROWS_REMEDY = (
    "ALTER TABLE … DISABLE ROW LEVEL SECURITY, if all rows may be seen; else name a table without "
    "it that holds what may be (no policy is enough, and no view: a copy that triggers or a job "
    "keep)"
)
_OTHER_REMEDY = "see the log of the store"


def trouble(matter: Matter, error: BackendError, *, remedy: str = "") -> Finding:
    """The error as a finding; what stands behind a semicolon in its text is its remedy."""
    reason, _, own = error.detail.partition("; ")
    hidden = _HIDDEN_ROWS_REMEDY if _HIDDEN_ROWS in reason else ""
    return matter.error(reason, remedy or own or hidden or _REMEDIES.get(error.code, _OTHER_REMEDY))
