"""Sidecar check: readiness, version, clock and dimensions of a running sidecar.

The HTTP client is given as a function; this module interprets the responses.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterator, Sequence
from email.utils import parsedate_to_datetime
from pathlib import Path
from urllib.parse import quote

from lookup_core.backoff import LONGEST_S
from lookup_core.errors import ErrorCode, SidecarUnreachable
from service.doctor.clock_skew import ClockReading, clock_finding
from service.doctor.finding import Finding, Subject
from service.doctor.sidecar.response import SidecarResponse
from service.doctor.sidecar.sharing_check import read_cache, sharing_finding
from service.version import own_version

_UNAUTHORIZED_REMEDY = (  # for every listener, the Unix socket included
    "give --token-file FILE: the file that auth.token_file names in the sidecar's configuration"
)
_CLIENT_HINT = "is it running there"  # start of the client's own remedy
_START = "start it, or name it with --endpoint; without a sidecar, give --without-sidecar"
_NO_SIDECAR = "check that a sidecar listens there"
_REMEDIES = {  # by the code of a health reason
    "unavailable": "see its log; with --config, the doctor checks the table, too",
    "no_index": "create one; with --config, the doctor prints the statement",
    "feed_incomplete": "let triggers, publication and connector report each change; see the"
    " runbook SidelookFeedIncomplete",
    "event_values_differ": "remove column.mask, column.truncate and transforms from the connector",
    "breaker_open": "repair the backend; lookups resume without a restart",
}
_TIMEOUT_REMEDY = (  # for `lookups_fail` with the code `timeout`: no check of the backend finds it
    "find slow queries and locks in pg_stat_activity, create an index, or raise the timeout of the "
    "dimension; see the runbook SidelookBackendSaturated"
)
# Their texts are errors of the backend, as they are.
_ENDS_WITH_REMEDY = frozenset(
    {"unavailable", "not_ready", "feed_error", "feed_unproved", "load_error"}
)
_NEXT_ATTEMPT = f"; its next attempt follows within {LONGEST_S:g} s"
_NOT_READY = frozenset({"unavailable", "not_ready"})


SidecarGet = Callable[[str], Awaitable[SidecarResponse]]  # gets a path, or SidecarUnreachable


async def check_sidecar(
    subject: Subject,
    *,
    get: SidecarGet,
    socket: Path | None = None,
    configured: Collection[str] | None = None,
    token_origin: str | None = None,
) -> AsyncGenerator[Finding, None]:
    """Yield readiness, version, clock and dimensions of the sidecar at an endpoint.

    `socket` is its Unix socket, if it is on this machine; `configured` names the dimensions of the
    configuration, if there is one; `token_origin` is the option or setting that names the token's
    file.
    """
    sent_s = time.time()
    try:
        live = await get("/livez")
    except SidecarUnreachable as error:
        yield unreachable_finding(subject, error.reason)
        return
    received_s = time.time()
    ready = await get("/readyz")
    document = await get("/openapi.json")
    version = document.fields.get("info", {}).get("version", "unknown")
    yield version_finding(subject, version, own_version())
    if live.date is not None:
        server_s = parsedate_to_datetime(live.date).timestamp()
        # The Date header has whole seconds, and servers may cache it for a second.
        reading = ClockReading(sent_s, received_s, server_s, resolution_s=1.0)
        yield clock_finding(Subject("clock", subject.name), reading)
    listed = await get("/v1/dimensions")
    if not listed.is_ok:
        yield readiness_finding(subject, live, ready)
        yield list_finding(subject, listed, token_origin)
        return
    names = listed.fields.get("dimensions", [])
    for finding in name_findings(subject, names, configured):
        yield finding
    paths = [f"/v1/dimensions/{quote(name, safe='')}" for name in names]
    responses = dict(zip(names, await asyncio.gather(*map(get, paths)), strict=True))
    waiting = [name for name, each in responses.items() if not is_ready(each)]
    yield readiness_finding(subject, live, ready, waiting=waiting)
    for name, response in responses.items():
        for finding in dimension_findings(Subject("sidecar", name), response, socket):
            yield finding


def unreachable_finding(subject: Subject, reason: str) -> Finding:
    """Return why there is no response; a remedy in the reason is kept, unless it is a hint."""
    what, _, remedy = reason.partition("; ")
    has_hint_only = not remedy or remedy.startswith(_CLIENT_HINT)
    return subject.error(f"does not respond: {what}", _START if has_hint_only else remedy)


def is_ready(response: SidecarResponse) -> bool:
    """Whether a dimension does not keep its sidecar from being ready."""
    return _NOT_READY.isdisjoint(each["code"] for each in response.fields.get("health", []))


def readiness_finding(
    subject: Subject, live: SidecarResponse, ready: SidecarResponse, *, waiting: Sequence[str] = ()
) -> Finding:
    """Return whether the sidecar is alive and ready; `waiting` are dimensions with own findings."""
    if not live.is_ok:
        return subject.error(f"/livez returns {live.refusal}", _NO_SIDECAR)
    if not ready.is_ok and waiting and ready.fields.get("code") != ErrorCode.DRAINING:
        reason = f"is not ready, because of {', '.join(waiting)}"
        return subject.skipped(reason, "see the findings of its dimensions")
    if not ready.is_ok:
        return subject.error(f"is not ready: {ready.refusal}", "see the log of the sidecar")
    return subject.ok("is alive and ready")


def version_finding(subject: Subject, theirs: str, own: str) -> Finding:
    """Return whether sidecar and doctor have the same version."""
    if theirs == own:
        return subject.ok(f"has version {theirs}")
    return subject.warning(
        f"has version {theirs}, and the doctor has {own}: the sidecar may behave differently from "
        "what is checked here",
        "run the doctor inside its container: kubectl exec -c sidelook POD -- sidelook doctor …",
    )


def list_finding(subject: Subject, response: SidecarResponse, token_origin: str | None) -> Finding:
    """Return why the dimensions cannot be listed."""
    text = "does not list its dimensions: "
    if response.fields.get("code") != ErrorCode.UNAUTHORIZED:
        return subject.error(f"{text}{response.refusal}", _NO_SIDECAR)
    reason = "requires a token" if token_origin is None else f"refuses the token of {token_origin}"
    return subject.error(f"{text}it {reason}", _UNAUTHORIZED_REMEDY)


def name_findings(
    subject: Subject, running: Collection[str], configured: Collection[str] | None
) -> Iterator[Finding]:
    """Yield a warning if the running dimensions differ from the configured ones."""
    if configured is not None and set(running) != set(configured):
        yield subject.warning(
            f"has dimensions {', '.join(sorted(running))}, and the configuration names "
            f"{', '.join(sorted(configured))}",
            "restart it, since it reads its configuration only at the start; or name its own file "
            "with --config",
        )


def _remedy(code: str, text: str) -> str:
    if code == "lookups_fail" and ErrorCode.TIMEOUT in text:
        return _TIMEOUT_REMEDY
    return _REMEDIES.get(code, "see the findings of its backend")


def dimension_findings(
    subject: Subject, response: SidecarResponse, socket: Path | None = None
) -> Iterator[Finding]:
    """Yield the health that the sidecar reports for one dimension, and whether it is shared."""
    if not response.is_ok:
        yield subject.error(f"is unavailable: {response.refusal}", _REMEDIES["unavailable"])
        return
    reasons = response.fields.get("health", [])
    for reason in reasons:
        code, text = reason["code"], reason["text"]
        found = subject.error if code in _NOT_READY else subject.warning
        what, _, remedy = text.partition("; ") if code in _ENDS_WITH_REMEDY else (text, "", "")
        remedy = remedy or _remedy(code, text)
        # The fault may be mended already.
        yield found(what, remedy + _NEXT_ATTEMPT if code == "feed_error" else remedy)
    if not reasons:
        yield subject.ok("is available")
    shared = response.fields.get("cache", {}).get("shared")
    if shared is not None:  # else an older sidecar
        folder = shared.get("folder")
        reading = None if socket is None or folder is None else read_cache(socket.parent / folder)
        yield sharing_finding(subject, shared, reading)
