"""Plan and runner of the checks: order, groups, timeouts and failures."""

import asyncio
import os
import pickle
import time
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from service.config.settings import Settings
from service.doctor.backends.database_check import combined_findings
from service.doctor.backends.postgres_server import ConnectionDemand, PostgresServer
from service.doctor.check_runner import Check, CheckResult, Stages, ended_checks, run_groups
from service.doctor.clock_skew import ClockReading
from service.doctor.deployment.spark_check import Deployment
from service.doctor.finding import Finding, Subject
from service.doctor.plan import Configured, RunningSidecar, plan, unknown_sidecar
from service.doctor.sidecar.response import SidecarResponse
from tests.service.config.configuration import AIRPORTS, CHANGELOG, CUSTOMERS, MINIMAL
from tests.service.doctor.findings import SUBJECT
from tests.service.tls.certificates import authority, section

FILE = Path("c.yaml")
NOTHING = Deployment()
SETTINGS = Settings(
    {
        "dimensions": {
            "a": CUSTOMERS,
            "b": CUSTOMERS | {"refresh": {"changelog": CHANGELOG}},
            "c": AIRPORTS,
        }
    }
)


@dataclass(slots=True)
class Script:
    """The inspection of a check: one finding, and then an end."""

    then: str = ""  # "hang", "hang on" (not cancelled), "break", "spin" (blocks its process), "die"

    async def inspect(self, subject: Subject) -> AsyncGenerator[Finding, None]:
        """One finding, and then the end."""
        yield subject.ok("seen")
        if self.then == "break":
            raise ValueError("no")
        if self.then == "die":
            os._exit(1)
        while self.then == "spin":
            pass
        while self.then.startswith("hang"):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if self.then == "hang":
                    raise


def scripted(name: str, then: str = "") -> Check:
    """A check with this script."""
    return Check(Subject(name, "x"), Script(then).inspect)


def blocking(subject: Subject, *, seconds: float) -> Iterator[Finding]:
    """The inspection of a file that is slow."""
    yield subject.ok("seen")
    time.sleep(seconds)
    yield subject.ok("read")


def short(results: list[CheckResult]) -> list[tuple[str, str, str]]:
    """Check, severity and message of each finding."""
    found = [each for each in results if isinstance(each, Finding)]
    return [(each.check, each.severity.value, each.message) for each in found]


async def ran(stages: Stages, timeout_s: float = 5.0) -> list[tuple[str, str, str]]:
    """The findings of all checks, in their order."""
    results = {number: found async for number, found in ended_checks(stages, timeout_s=timeout_s)}
    return short([result for number in sorted(results) for result in results[number]])


async def test_broken_check_hides_no_other() -> None:
    """Findings keep the order of checks; a broken check is an error after its own findings."""
    assert await ran([[scripted("a", "break"), scripted("b")], [scripted("c")]]) == [
        ("a", "ok", "seen"),
        ("a", "error", "the check failed: ValueError"),
        ("b", "ok", "seen"),
        ("c", "ok", "seen"),
    ]


async def test_hanging_check_ends_in_time() -> None:
    """A check without an answer is an error, even if it ignores its cancellation, or has no loop.

    What it found before is kept.
    """
    script = Script("hang on")
    stuck = Check(Subject("b", "x"), script.inspect)
    blocked = Check(Subject("c", "x"), partial(blocking, seconds=0.3))
    try:
        seen = await ran([[scripted("a", "hang"), stuck, blocked], [scripted("d")]], 0.05)
    finally:
        script.then = "hang"  # so that the loop of the test can end

    hung = ("error", "no answer within 0.05 s")
    assert seen == [
        *[("a", "ok", "seen"), ("a", *hung)],
        *[("b", "ok", "seen"), ("b", *hung)],
        *[("c", "ok", "seen"), ("c", *hung)],
        ("d", "ok", "seen"),
    ]


def test_groups_do_not_hold_each_other_up() -> None:
    """A group whose process hangs or dies is ended; other groups are not affected.

    In the group itself, checks that ended before keep their findings.
    """
    spinning = [[scripted("a")], [scripted("b", "spin")], [scripted("c")]]
    dying = [[scripted("d", "die")]]

    seen = short(run_groups([spinning, dying, [[], [scripted("e")]]], timeout_s=0.5))

    assert seen == [
        ("a", "ok", "seen"),
        ("b", "error", "no answer within 3 s"),
        ("c", "skipped", "was not checked, because its database does not answer"),
        ("d", "error", "the check failed: its process has ended"),
        ("e", "ok", "seen"),
    ]


@pytest.mark.parametrize(
    ("root", "is_repeated"),
    [
        (Subject("table", "a").error("t: no such table", "create it"), True),
        (Subject("database", "h").error("no such table", "create it"), True),
        (Subject("kafka", "a: topic").warning("no such table", "create it"), True),
        (Subject("table", "a").error("t: no column id", "correct it"), True),
        (Subject("table", "a").warning("t: has bloat", "vacuum it"), False),
        (Subject("table", "b").error("t: no such table", "create it"), False),
        (Subject("table", "a").ok("t: no such table"), False),
        (Subject("secrets", "a").error("t: no such table", "create it"), False),
    ],
)
def test_repeated_fault_is_reported_once(root: Finding, *, is_repeated: bool) -> None:
    """A sidecar's finding is skipped if the same fault is reported, or the table is unusable."""
    repeated = Subject("sidecar", "a").error("table_unavailable: t: no such table", "look")
    skipped = Subject("sidecar", "a").skipped(
        f"was not checked further, because of the fault of the {root.place}", "see its finding"
    )

    assert combined_findings([repeated, root], None) == [
        skipped if is_repeated else repeated,
        root,
    ]


def test_connection_demands_come_last() -> None:
    """A connection demand crosses processes; its finding follows all others."""
    server = PostgresServer(160004, "16.4", "r", "d", ClockReading(0.0, 0.0, 0.0))
    demand = ConnectionDemand("h", server, 8)
    crossed = pickle.loads(pickle.dumps(demand))  # noqa: S301  # our own pipe

    assert crossed == demand
    assert [each.check for each in combined_findings([crossed, SUBJECT.ok("x")], None)] == [
        "check",
        "connections",
    ]


def names(
    configured: Configured,
    sidecar: RunningSidecar | Check | None = None,
    deployment: Deployment = NOTHING,
) -> list[list[str]]:
    """The checks of a plan: groups, and their stages."""
    groups = plan(configured, sidecar, deployment)
    return [[" ".join(check.subject.check for check in stage) for stage in each] for each in groups]


def test_given_parts_have_checks(tmp_path: Path) -> None:
    """A missing configuration is a finding; one with faults leaves out its backends only."""
    faulty = Configured(FILE, faults=["x"])
    local = RunningSidecar("unix:///s", _ask, Path("/s"))
    remote = RunningSidecar("http://h", _ask)
    pod, conf = Deployment(pod_template=FILE, spark_conf=FILE), Deployment(spark_conf=FILE)
    tls = section(authority(tmp_path).issue())
    secure = Settings({"listen": {"http": "127.0.0.1:1", "tls": tls}}, MINIMAL)

    assert [
        *names(Configured(), local)[0],
        *names(Configured(FILE, secure))[0],
        *names(faulty, remote, pod)[0],
        *names(faulty, unknown_sidecar("c.yaml"), conf)[0],
    ] == [
        "configuration socket sidecar limits kubernetes",
        "configuration secrets shared memory tls table kubernetes",
        "configuration sidecar limits kubernetes pod template",
        "configuration sidecar limits kubernetes spark",
    ]


def test_databases_are_apart(tmp_path: Path) -> None:
    """Each database with its tables is a group; an address that cannot be read is in none."""
    file = tmp_path / "dsn"
    file.write_text("postgresql://me@h/d")
    file.chmod(0o400)
    source = {"kind": "postgres", "dsn_file": str(file), "table": "t"}
    vanished = Settings({"dimensions": {"a": {"source": source, "key": ["id"]}}})
    file.unlink()

    assert names(Configured(FILE, SETTINGS)) == [
        ["configuration secrets shared memory kafka table kubernetes"],
        ["database", "table table"],
    ]
    assert names(Configured(FILE, vanished)) == [["configuration secrets shared memory kubernetes"]]


async def _ask(_path: str) -> SidecarResponse:
    raise AssertionError  # a plan queries nothing
