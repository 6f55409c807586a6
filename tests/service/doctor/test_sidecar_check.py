"""What a running sidecar's answers mean."""

import time
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any

import pytest

from lookup_core.errors import SidecarUnreachable
from service.doctor.sidecar.sidecar_check import (
    SidecarAnswer,
    SidecarCheck,
    dimension_findings,
    life_findings,
    list_finding,
    name_findings,
    unreachable_finding,
    version_finding,
)
from service.version import own_version
from tests.service.doctor.findings import MATTER, gathered, severities

OK = SidecarAnswer(200, "ok\n")
DRAINING = SidecarAnswer(503, {"code": "draining", "detail": "is going"})
WELL = {"unavailable": None, "backend": {"breaker": "closed"}, "freshness": {"feed": None}}


@dataclass
class Sidecar:
    """Answers of a sidecar that is well, and what is put in their place."""

    answers: dict[str, SidecarAnswer] = field(default_factory=dict)

    async def ask(self, path: str) -> SidecarAnswer:
        """The answer to a path."""
        info = {"info": {"version": own_version()}}
        plain = {
            "/livez": SidecarAnswer(200, "ok\n", formatdate(time.time(), usegmt=True)),
            "/readyz": OK,
            "/openapi.json": SidecarAnswer(200, info),
            "/v1/dimensions": SidecarAnswer(200, {"dimensions": ["a b"]}),
            "/v1/dimensions/a%20b": SidecarAnswer(200, WELL),
        }
        return (plain | self.answers)[path]


async def bad(sidecar: Sidecar) -> list[str]:
    """What is not well."""
    found = await gathered(SidecarCheck("unix:///s", sidecar.ask, ["a b"]).findings())
    return [finding.message for finding in found if finding.severity != "ok"]


async def test_sidecar_that_is_well_has_no_finding() -> None:
    """It lives, is ready, of this version, on time, and has what is configured."""
    assert await bad(Sidecar()) == []


async def test_sidecar_that_is_away_is_one_error() -> None:
    """Nothing else is asked then."""

    async def ask(_path: str) -> SidecarAnswer:
        raise SidecarUnreachable("unix:///s", "Connection refused; is it running there?")

    (finding,) = await gathered(SidecarCheck("unix:///s", ask).findings())

    assert (finding.severity, finding.message) == ("error", "does not answer: Connection refused")


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ("nobody in ca.pem signed its certificate; name who did with --ca-file", "name who did"),
        ("Connection refused; is it running there? if it is elsewhere, name it", "start it"),
        ("no answer in time", "start it"),
    ],
)
def test_remedy_of_the_error_is_kept(reason: str, remedy: str) -> None:
    """Who answers, and not as is wanted, need not be started."""
    assert unreachable_finding(MATTER, reason).remedy.startswith(remedy)


async def test_token_is_asked_for() -> None:
    """Where it tells its dimensions to nobody, the remedy is a token; its life is told anyway."""
    refused = SidecarAnswer(401, {"code": "unauthorized", "detail": "needs a token"})

    (message,) = await bad(Sidecar({"/v1/dimensions": refused}))

    assert message == "does not tell its dimensions: it wants a token"


@pytest.mark.parametrize(
    ("code", "origin", "told", "remedy"),
    [
        ("unauthorized", None, "it wants a token", "give --token-file FILE"),
        ("unauthorized", "--token-file", "it refuses the token of --token-file", "give --token-"),
        ("unauthorized", "auth.token_file", "it refuses the token of auth.token_", "give --token-"),
        ("internal", None, "status 500, x", "see that what answers"),
    ],
)
def test_refused_list_has_its_remedy(code: str, origin: str | None, told: str, remedy: str) -> None:
    """Whose token was refused is told; another listener is no remedy, as each asks for it."""
    answer = SidecarAnswer(500, {"code": code, "detail": "x"})

    finding = list_finding(MATTER, answer, origin)

    assert finding.message.startswith(f"does not tell its dimensions: {told}")
    assert finding.remedy.startswith(remedy)
    assert "socket" not in finding.remedy


async def test_clock_of_the_sidecar_is_read() -> None:
    """A Date header of a minute ago is a clock that is behind."""
    late = SidecarAnswer(200, "ok\n", formatdate(time.time() - 60, usegmt=True))

    (message,) = await bad(Sidecar({"/livez": late}))

    assert "behind this one" in message


@pytest.mark.parametrize(
    ("live", "ready", "message"),
    [
        (OK, OK, "lives, and takes lookups"),
        (OK, DRAINING, "is not ready: status 503, is going"),
        (SidecarAnswer(404, "no"), OK, "/livez says status 404"),
    ],
)
def test_life_is_judged(live: SidecarAnswer, ready: SidecarAnswer, message: str) -> None:
    """Who lives and is ready is well; else the answer's own reason is told."""
    (finding,) = life_findings(MATTER, live, ready)

    assert finding.message == message
    assert (finding.severity == "ok") == (live is ready)


@pytest.mark.parametrize(("theirs", "severity"), [("1.2", "ok"), ("1.3", "warning")])
def test_version_must_be_the_same(theirs: str, severity: str) -> None:
    """Another version may do otherwise than what is checked here."""
    assert version_finding(MATTER, theirs, "1.2").severity == severity


@pytest.mark.parametrize(
    ("configured", "expected"),
    [(None, []), (["a", "b"], []), (["a"], ["warning"]), (["a", "c"], ["warning"])],
)
def test_names_must_be_those_configured(configured: Any, expected: list[str]) -> None:  # noqa: ANN401
    """A sidecar that was started with another file keeps what it read."""
    assert severities(name_findings(MATTER, ["b", "a"], configured)) == expected


@pytest.mark.parametrize(
    ("told", "severity", "message"),
    [
        (WELL, "ok", "can be looked up"),
        ({"unavailable": {"detail": "t: gone"}}, "error", "is unavailable: t: gone"),
        (WELL | {"backend": {"breaker": "open"}}, "warning", "its breaker is open"),
        (
            WELL | {"freshness": {"feed": {"state": "silent", "last_error": "t: x; run y"}}},
            "warning",
            "its feed has failed: t: x",
        ),
        (WELL | {"freshness": {"feed": {"state": "live", "last_error": "x"}}}, "ok", "can be"),
    ],
)
def test_dimensions_are_judged(told: dict[str, Any], severity: str, message: str) -> None:
    """Unavailable ones are errors; a store or a feed that failed is a warning."""
    (finding,) = dimension_findings(MATTER, SidecarAnswer(200, told))

    assert finding.severity == severity
    assert finding.message.startswith(message)
