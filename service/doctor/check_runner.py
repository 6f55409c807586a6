"""Checks of the doctor, and their runner: concurrent, in processes, each with a timeout."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncGenerator, Callable, Hashable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from multiprocessing import connection, get_context
from multiprocessing.context import ForkProcess

from service.doctor.backends.postgres_server import ConnectionDemand
from service.doctor.finding import Finding, Subject

CheckResult = Finding | ConnectionDemand  # all demands of a server make one finding at the end


@dataclass(frozen=True, slots=True)
class Check:
    """A subject, and the function that inspects it without changing anything.

    `inspect` yields each result as soon as it is known, since a later step may hang. Expected
    failures are findings; an exception is reported as a fault of the check itself. Cancellation
    closes all connections.
    """

    subject: Subject  # also named if the check times out
    inspect: Callable[[Subject], AsyncGenerator[CheckResult, None]]
    database: Hashable = None  # checks of one database run in one process, and share memory


CHECK_TIMEOUT_S = 5.0
END_TIMEOUT_S = 0.5  # after the timeout; a check that ignores its cancellation is abandoned then
_BUG_REMEDY = "inspect the subject manually, and report this as a bug"

Stages = Sequence[Sequence[Check]]
OnResult = Callable[[int, CheckResult | None], None]  # number of the check; None: the check ended


@dataclass(frozen=True, slots=True)
class _Run:
    """A check with its results so far; each result is reported at once."""

    check: Check
    number: int
    on_result: OnResult
    results: list[CheckResult] = field(default_factory=list)

    def add(self, result: CheckResult) -> None:
        self.results.append(result)
        self.on_result(self.number, result)

    async def to_end(self, timeout_s: float) -> None:
        try:
            async with (
                asyncio.timeout(timeout_s),
                aclosing(self.check.inspect(self.check.subject)) as results,
            ):
                async for result in results:
                    self.add(result)
        except TimeoutError:
            self.add(_timeout_finding(self.check, timeout_s))
        except Exception as error:  # noqa: BLE001  # one broken check must not hide the others
            message = f"the check failed: {type(error).__name__}"
            self.add(self.check.subject.error(message, _BUG_REMEDY))


def _timeout_finding(check: Check, timeout_s: float) -> Finding:
    message = f"no answer within {timeout_s:g} s"
    return check.subject.error(message, "check that it responds, and is reachable from here")


async def run_checks(
    stages: Stages,
    *,
    timeout_s: float = CHECK_TIMEOUT_S,
    on_result: OnResult = lambda _number, _result: None,
) -> list[CheckResult]:
    """Run all checks and return their results in the order of the checks.

    The checks of a stage run concurrently, after the end of the stage before. A stage takes at
    most `timeout_s` plus half a second.
    """
    results: list[CheckResult] = []
    started = 0
    for checks in stages:
        runs = [_Run(check, number, on_result) for number, check in enumerate(checks, started)]
        started += len(checks)
        tasks = [asyncio.create_task(run.to_end(timeout_s)) for run in runs]
        if tasks:
            await asyncio.wait(tasks, timeout=timeout_s + END_TIMEOUT_S)
        for run, task in zip(runs, tasks, strict=True):
            if not task.done():
                run.add(_timeout_finding(run.check, timeout_s))
            results += run.results  # copied: an abandoned check may still add to its own list
            on_result(run.number, None)
    return results


@dataclass(slots=True)
class _Group:
    """A process that runs stages of checks, and the results received from it."""

    stages: Stages
    process: ForkProcess
    receiver: connection.Connection
    results: dict[int, list[CheckResult]] = field(default_factory=dict)  # {number of the check: …}
    ended: set[int] = field(default_factory=set)  # numbers of checks

    def receive(self) -> bool:
        """Take one message of the process; False at the end of the pipe."""
        try:
            number, result = self.receiver.recv()
        except (EOFError, OSError):  # OSError: the process ended within a message
            return False
        if result is None:
            self.ended.add(number)
        else:
            self.results.setdefault(number, []).append(result)
        return True

    def all_results(self, limit_s: float) -> Iterator[CheckResult]:
        """Yield the results, and a finding for each check that did not end."""
        number = 0
        is_blocked = False  # the stage after an unfinished one did not start
        for checks in self.stages:
            has_started = not is_blocked
            for check in checks:
                yield from self.results.get(number, ())
                if number not in self.ended:
                    is_blocked = True
                    yield self._unfinished(check, limit_s, has_started=has_started)
                number += 1

    def _unfinished(self, check: Check, limit_s: float, *, has_started: bool) -> Finding:
        if not has_started:
            return check.subject.skipped(
                "was not checked, because its database does not answer",
                "see the finding of its database",
            )
        # At the time limit the processes are killed by this one.
        if self.process.exitcode in {None, -signal.SIGKILL}:
            return _timeout_finding(check, limit_s)
        return check.subject.error("the check failed: its process has ended", _BUG_REMEDY)


# Forked: the checks hold objects that cannot be pickled, and a fork shares memory, which is scarce
# in the sidecar's container. Not to be called while other threads run.
_FORK = get_context("fork")


def run_checks_apart(
    groups: Sequence[Stages], *, timeout_s: float = CHECK_TIMEOUT_S
) -> list[CheckResult]:
    """Run each group in a process of its own, and return the results group by group.

    Ends within the time limit of the group with the most stages.
    """
    limit_s = max(map(len, groups), default=0) * (timeout_s + END_TIMEOUT_S)
    deadline_s = time.monotonic() + limit_s
    started: list[_Group] = []
    try:
        started += (_start(stages, timeout_s, limit_s) for stages in groups)
        _receive_all(started, deadline_s)
    finally:
        for group in started:
            group.process.kill()
            group.process.join(END_TIMEOUT_S)
    return [result for group in started for result in group.all_results(limit_s)]


def _start(stages: Stages, timeout_s: float, limit_s: float) -> _Group:
    receiver, sender = _FORK.Pipe(duplex=False)
    # Closed in this process, so that the pipe ends with the child.
    with sender:
        limits = {"timeout_s": timeout_s, "limit_s": limit_s}
        process = _FORK.Process(target=_run_group, args=(stages, sender), kwargs=limits)
        process.start()
    return _Group(stages, process, receiver)


def _run_group(
    stages: Stages, sender: connection.Connection, *, timeout_s: float, limit_s: float
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its children
    # If the parent has died, the kernel ends this process.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, limit_s + 2 * END_TIMEOUT_S)

    async def run() -> None:
        await run_checks(stages, timeout_s=timeout_s, on_result=lambda *sent: sender.send(sent))
        os._exit(0)  # at once, even if a thread of a check is still blocked

    asyncio.run(run())


def _receive_all(groups: Sequence[_Group], deadline_s: float) -> None:
    open_groups: dict[object, _Group] = {group.receiver: group for group in groups}
    while open_groups:
        ready = connection.wait(
            [group.receiver for group in open_groups.values()],
            max(deadline_s - time.monotonic(), 0.0),
        )
        if not ready:
            return
        for receiver in ready:
            if not open_groups[receiver].receive():
                del open_groups[receiver]
