"""What a running sidecar says of itself: is it ready, and which dimensions are not.

Who asks it over which connection is the caller's business; what its answers mean is decided here.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote

from lookup_core.errors import ErrorCode, SidecarUnreachable
from service.doctor.finding import Finding, Subject
from service.doctor.sidecar.clock import ClockReading, clock_findings
from service.version import own_version

_GIVE_IT = (  # over the Unix socket, too
    "give --token-file FILE: the file that auth.token_file names in the sidecar's configuration"
)
_QUESTION = "is it running there"
_START = "start it, or name it with --endpoint; where none is to run, give --without-sidecar"


@dataclass(frozen=True, slots=True)
class SidecarAnswer:
    """An answer over HTTP; a body that is no JSON is its text."""

    status: int
    body: Any = None
    date: str | None = None  # the header

    @property
    def is_ok(self) -> bool:
        """Whether what was asked for is there."""
        return self.status == 200

    @property
    def is_of_token(self) -> bool:
        """Whether it was refused for want of the right token."""
        return self.told.get("code") == ErrorCode.UNAUTHORIZED

    @property
    def told(self) -> Mapping[str, Any]:
        """The body as an object; empty if it is none."""
        return self.body if isinstance(self.body, dict) else {}


AskSidecar = Callable[[str], Awaitable[SidecarAnswer]]  # GET of a path; raises SidecarUnreachable


@dataclass(frozen=True, slots=True)
class SidecarCheck:
    """The sidecar at an endpoint, and the dimensions that the configuration gives it."""

    endpoint: str
    ask: AskSidecar
    configured: Collection[str] | None = None  # None: no configuration
    token_origin: str | None = None  # the option or setting whose token is shown

    @property
    def matter(self) -> Subject:
        """The sidecar."""
        return Subject("sidecar", self.endpoint)

    async def findings(self) -> AsyncGenerator[Finding, None]:
        """Life, readiness, version, clock and dimensions."""
        asked_s = time.time()
        try:
            live = await self.ask("/livez")
        except SidecarUnreachable as error:
            yield unreachable_finding(self.matter, error.reason)
            return
        answered_s = time.time()
        for finding in life_findings(self.matter, live, await self.ask("/readyz")):
            yield finding
        document = await self.ask("/openapi.json")
        version = document.told.get("info", {}).get("version", "unknown")
        yield version_finding(self.matter, version, own_version())
        # Its clock is read to the second, and a header may be made once for all of one.
        if live.date is not None:
            other_s = parsedate_to_datetime(live.date).timestamp()
            reading = ClockReading(asked_s, answered_s, other_s, resolution_s=1.0)
            for finding in clock_findings(Subject("clock", self.endpoint), reading):
                yield finding
        async for finding in self._dimensions():
            yield finding

    async def _dimensions(self) -> AsyncGenerator[Finding, None]:
        listed = await self.ask("/v1/dimensions")
        if not listed.is_ok:
            yield list_finding(self.matter, listed, self.token_origin)
            return
        names = listed.told.get("dimensions", [])
        for finding in name_findings(self.matter, names, self.configured):
            yield finding
        paths = [f"/v1/dimensions/{quote(name, safe='')}" for name in names]
        answers = await asyncio.gather(*map(self.ask, paths))
        for name, answer in zip(names, answers, strict=True):
            for finding in dimension_findings(Subject("sidecar", name), answer):
                yield finding


def unreachable_finding(matter: Subject, reason: str) -> Finding:
    """Nobody answers; who has something else to say than that nobody is there, has a remedy."""
    what, _, remedy = reason.partition("; ")
    # Clients can only ask whether it runs; here there is more to say.
    is_asking = not remedy or remedy.startswith(_QUESTION)
    return matter.error(f"does not answer: {what}", _START if is_asking else remedy)


def life_findings(matter: Subject, live: SidecarAnswer, ready: SidecarAnswer) -> Iterator[Finding]:
    """Whether it lives and takes lookups."""
    if not live.is_ok:
        yield matter.error(
            f"/livez says {_refusal(live)}", "see that what answers there is a sidecar"
        )
    elif not ready.is_ok:
        yield matter.error(
            f"is not ready: {_refusal(ready)}", "mend what the findings of its dimensions say"
        )
    else:
        yield matter.ok("lives, and takes lookups")


def version_finding(matter: Subject, theirs: str, mine: str) -> Finding:
    """Whether it is of the doctor's own version."""
    if theirs == mine:
        return matter.ok(f"is of version {theirs}")
    return matter.warning(
        f"is of version {theirs}, and this is {mine}: what is checked here may not be what it does",
        "run the doctor inside its container: kubectl exec -c sidelook POD -- python -m service …",
    )


def list_finding(matter: Subject, answer: SidecarAnswer, token_origin: str | None) -> Finding:
    """Why it does not tell its dimensions; a token is asked for over every listener."""
    text = "does not tell its dimensions: "
    if not answer.is_of_token:
        remedy = "see that what answers there is a sidecar"
        return matter.error(f"{text}{_refusal(answer)}", remedy)
    wish = "wants a token" if token_origin is None else f"refuses the token of {token_origin}"
    return matter.error(f"{text}it {wish}", _GIVE_IT)


def name_findings(
    matter: Subject, running: Collection[str], configured: Collection[str] | None
) -> Iterator[Finding]:
    """Whether it runs what the configuration says now."""
    if configured is not None and set(running) != set(configured):
        yield matter.warning(
            f"has dimensions {', '.join(sorted(running))}, and the configuration names "
            f"{', '.join(sorted(configured))}",
            "start it anew: what it read at its start is what it keeps; or name its own file",
        )


def dimension_findings(matter: Subject, answer: SidecarAnswer) -> Iterator[Finding]:
    """Whether one dimension can be looked up, and is followed."""
    told = answer.told
    unavailable = told.get("unavailable")
    if not answer.is_ok or unavailable:
        reason = unavailable.get("detail", "") if unavailable else _refusal(answer)
        yield matter.error(
            f"is unavailable: {reason}", "mend what the findings of its table and database say"
        )
        return
    troubles = list(_troubles(matter, told))
    yield from troubles or [matter.ok("can be looked up")]


def _troubles(matter: Subject, told: Mapping[str, Any]) -> Iterator[Finding]:
    breaker = told.get("backend", {}).get("breaker")
    if breaker not in {None, "closed"}:
        yield matter.warning(
            f"its breaker is {breaker}: the store failed, and is asked with care",
            "mend the store; lookups come back by themselves",
        )
    freshness = told.get("freshness") or {}
    for part in ("feed", "load"):
        error = (freshness.get(part) or {}).get("last_error")
        state = (freshness.get(part) or {}).get("state", "")
        if error and state != "live":
            reason, _, remedy = str(error).partition("; ")
            yield matter.warning(
                f"its {part} has failed: {reason}", remedy or "see the findings of what it reads"
            )


def _refusal(answer: SidecarAnswer) -> str:
    detail = answer.told.get("detail")
    return f"status {answer.status}" + (f", {detail}" if detail else "")
