"""Plan and runner of the checks: order, groups, timeouts and failures."""

import asyncio
import json
import os
import pickle
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path

import pytest

from service.config.settings import Settings
from service.doctor.backends.database_check import combined_findings
from service.doctor.backends.postgres_server import (
    ConnectionCounts,
    ConnectionDemand,
    PostgresServer,
)
from service.doctor.check_runner import Check, CheckResult, run_checks, run_checks_apart
from service.doctor.clock_skew import ClockReading
from service.doctor.finding import Finding, Subject
from service.doctor.plan import (
    Configured,
    Deployment,
    RunningSidecar,
    groups,
    plan,
    unknown_sidecar,
)
from service.doctor.sidecar.sidecar_check import SidecarResponse
from tests.service.config.configuration import AIRPORTS, CHANGELOG, CUSTOMERS, MINIMAL
from tests.service.doctor.executor_pod import make_ordinary, template
from tests.service.doctor.findings import SUBJECT, gathered
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


def short(results: list[CheckResult]) -> list[tuple[str, str, str]]:
    """Check, severity and message of each finding."""
    found = [each for each in results if isinstance(each, Finding)]
    return [(each.check, each.severity.value, each.message) for each in found]


async def test_broken_check_hides_no_other() -> None:
    """Findings keep the order of checks; a broken check is an error after its own findings."""
    seen = await run_checks([[scripted("a", "break"), scripted("b")], [scripted("c")]])

    assert short(seen) == [
        ("a", "ok", "seen"),
        ("a", "error", "the check failed: ValueError"),
        ("b", "ok", "seen"),
        ("c", "ok", "seen"),
    ]


async def test_hanging_check_ends_in_time() -> None:
    """A check without an answer is an error, even if it ignores its cancellation."""
    script = Script("hang on")
    stuck = Check(Subject("b", "x"), script.inspect)
    try:
        seen = await run_checks([[scripted("a", "hang"), stuck], [scripted("c")]], timeout_s=0.05)
    finally:
        script.then = "hang"  # so that the loop of the test can end

    assert short(seen) == [
        ("a", "ok", "seen"),
        ("a", "error", "no answer within 0.05 s"),
        ("b", "ok", "seen"),
        ("b", "error", "no answer within 0.05 s"),
        ("c", "ok", "seen"),
    ]


def test_groups_do_not_hold_each_other_up() -> None:
    """A group whose process hangs or dies is ended; other groups are not affected."""
    spinning = [[scripted("a", "spin")], [scripted("b")]]
    dying = [[scripted("c", "die")]]

    seen = run_checks_apart([spinning, dying, [[], [scripted("d")]]], timeout_s=0.5)

    assert short(seen) == [
        ("a", "ok", "seen"),
        ("a", "error", "no answer within 2 s"),
        ("b", "skipped", "was not checked, because its database does not answer"),
        ("c", "ok", "seen"),
        ("c", "error", "the check failed: its process has ended"),
        ("d", "ok", "seen"),
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
    server = PostgresServer(
        160004, "16.4", "r", "d", ClockReading(0.0, 0.0, 0.0), ConnectionCounts()
    )
    demand = ConnectionDemand("h", server, 8)
    crossed = pickle.loads(pickle.dumps(demand))  # noqa: S301  # our own pipe

    assert crossed == demand
    assert [each.check for each in combined_findings([crossed, SUBJECT.ok("x")], None)] == [
        "check",
        "connections",
    ]


def names(
    configured: Configured | None,
    sidecar: RunningSidecar | Check | None = None,
    deployment: Deployment = NOTHING,
) -> list[str]:
    """The checks of a plan, stage by stage."""
    stages = plan(configured, sidecar, deployment)
    return [" ".join(each.subject.check for each in stage) for stage in stages]


def test_given_parts_have_checks(tmp_path: Path) -> None:
    """A missing configuration is a finding; one with faults leaves out its backends only."""
    faulty = Configured(FILE, faults=["x"])
    local = RunningSidecar("unix:///s", _ask, Path("/s"))
    remote = RunningSidecar("http://h", _ask)
    files = Deployment(pod_template=FILE, spark_conf=FILE)
    tls = section(authority(tmp_path).issue())
    secure = Settings({"listen": {"http": "127.0.0.1:1", "tls": tls}}, MINIMAL)

    assert [
        names(None, local),
        names(Configured(FILE, SETTINGS)),
        names(Configured(FILE, secure)),
        names(faulty, remote, files),
        names(faulty, unknown_sidecar("c.yaml")),
    ] == [
        ["configuration socket sidecar limits kubernetes", ""],
        ["configuration secrets shared memory database kafka table kubernetes", "table table"],
        ["configuration secrets shared memory tls table kubernetes", ""],
        ["configuration sidecar limits kubernetes pod template spark", ""],
        ["configuration sidecar limits kubernetes", ""],
    ]


def test_databases_are_apart(tmp_path: Path) -> None:
    """Each database with its tables is a group; an address that cannot be read is in none."""
    file = tmp_path / "dsn"
    file.write_text("postgresql://me@h/d")
    file.chmod(0o400)
    source = {"kind": "postgres", "dsn_file": str(file), "table": "t"}
    vanished = Settings({"dimensions": {"a": {"source": source, "key": ["id"]}}})
    file.unlink()

    parts = groups(plan(Configured(FILE, SETTINGS), None, NOTHING))

    assert [[[each.subject.check for each in stage] for stage in part] for part in parts] == [
        [["configuration", "secrets", "shared memory", "kafka", "table", "kubernetes"], []],
        [["database"], ["table", "table"]],
    ]
    assert names(Configured(FILE, vanished))[0] == "configuration secrets shared memory kubernetes"


async def test_template_follows_the_properties(tmp_path: Path) -> None:
    """An ordinary container is a warning if Spark's properties exclude it, else an error."""
    conf, pod = tmp_path / "spark.conf", tmp_path / "pod.json"
    conf.write_text("spark.kubernetes.executor.checkAllContainers false\n")
    pod.write_text(json.dumps(template(make_ordinary).pod.values))
    found = []
    for file in (conf, tmp_path / "none"):
        (checks, _) = plan(None, None, Deployment(pod_template=pod, spark_conf=file))
        (check,) = [each for each in checks if each.subject.check == "pod template"]
        found.append((await gathered(check.inspect(check.subject)))[0].severity)

    assert found == ["warning", "error"]


async def _ask(_path: str) -> SidecarResponse:
    raise AssertionError  # a plan queries nothing
