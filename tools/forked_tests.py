"""Test runner in forks of a process that has imported slow libraries but not the product.

One child runs at a time. It reports each test through a pipe, which identifies a hanging test.
"""

import functools
import importlib
import json
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import hypothesis
import pytest

SLOW_IMPORTS = (
    *("aiohttp.web", "aiokafka", "asyncpg", "numpy", "opentelemetry.sdk.trace", "orjson"),
    *("pandas", "prometheus_client", "pyarrow.compute", "pyarrow.dataset", "pyarrow.parquet"),
    *("pydantic", "pyspark.sql", "pytest_asyncio", "rich.console", "ruamel.yaml"),
    *("schemathesis", "structlog", "trustme", "typer", "uvloop", "websockets", "yarl"),
)
COLLECTION_S = 600  # on a busy machine
RUN_S = 3600  # for all tests of one run
TEST_S = 60  # per test, in addition to ten times its earlier duration
MAX_MEMORY_BYTES = 12 * 2**30  # of address space; a mutant may allocate without bound
OPTIONS = (
    *("-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:xdist"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),  # plugins are imported by `warm_up`
)


@dataclass(slots=True)
class Run:
    """Results of a test run."""

    seconds: dict[str, float] = field(default_factory=dict)  # {test that ended: duration}
    failures: list[str] = field(default_factory=list)  # tests, or files that cannot be imported
    is_timeout: bool = False  # of the last failure


def warm_up() -> None:
    """Import what most tests import, once for all forks."""
    for name in SLOW_IMPORTS:
        with suppress(ImportError):
            importlib.import_module(name)


def run_tests(  # noqa: PLR0917 - all tests or some; nothing else is optional
    tree: Path, options: Sequence[str], known: Mapping[str, float], only: Collection[str] = ()
) -> Run:
    """Run pytest in a copy of the tree, all tests or `only` some; `known` are their durations."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _be_child(tree, options, _Reporter(writer, known, only))
    os.close(writer)
    try:
        return _follow(reader, child)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(child, 0)


def _follow(reader: int, child: int) -> Run:
    run, test, until = Run(), "collection", time.monotonic() + RUN_S
    with os.fdopen(reader) as lines:
        for line in lines:
            event, name, seconds = json.loads(line)
            if time.monotonic() > until:
                run.is_timeout = True
                run.failures.append(test)
                return run
            if event == "started":
                test = name
            elif event == "failed":
                run.failures.append(name)
            elif event == "took":
                run.seconds[name] = run.seconds.get(name, 0.0) + seconds
            else:
                if name != "0" and not run.failures:
                    run.failures.append(f"pytest ended with {name} at {test}")
                return run
    _, status = os.waitpid(child, 0)  # the child died without an end report
    run.is_timeout = os.waitstatus_to_exitcode(status) == -signal.SIGALRM
    run.failures.append(test)
    return run


def _be_child(tree: Path, options: Sequence[str], reporter: "_Reporter") -> None:
    status = 70
    try:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.chdir(tree)
        checkout = str(Path(__file__).parents[1])
        sys.path[:] = [str(tree), *(path for path in sys.path if path not in {"", checkout})]
        output = os.open(tree / "pytest.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for target, source in enumerate((os.open(os.devnull, os.O_RDONLY), output, output)):
            os.dup2(source, target)
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
        signal.alarm(COLLECTION_S)
        status = int(pytest.main([*OPTIONS, *options], plugins=[reporter]))
    except BaseException:  # noqa: BLE001 - a fork must not return into the code of its parent
        traceback.print_exc()
    try:
        sys.stderr.flush()
        reporter.report("ended", str(status))
    finally:
        os._exit(status)


class _Reporter:
    """A pytest plugin: selects tests, keeps hypothesis repeatable, reports through the pipe."""

    def __init__(self, writer: int, known: Mapping[str, float], only: Collection[str]) -> None:
        self._writer = writer
        self._known = known
        self._only = only
        os.register_at_fork(after_in_child=functools.partial(os.close, writer))

    def pytest_configure(self) -> None:
        phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
        settings = hypothesis.settings(derandomize=True, database=None, phases=phases)
        hypothesis.settings.register_profile("mutants", settings)
        hypothesis.settings.load_profile("mutants")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        others = [item for item in items if self._only and item.nodeid not in self._only]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if not self._only or item.nodeid in self._only]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        signal.alarm(TEST_S + int(10 * self._known.get(nodeid, TEST_S)))
        self.report("started", nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.report("failed", report.nodeid)
        self.report("took", report.nodeid, report.duration)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.report("failed", report.nodeid)

    def report(self, event: str, name: str, seconds: float = 0.0) -> None:
        """Write one line to the parent."""
        os.write(self._writer, json.dumps([event, name, seconds]).encode() + b"\n")
