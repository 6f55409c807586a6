"""Checks of the doctor, and their runner: concurrent, in processes, each with a timeout.

Processes, because the bytes of a server can let its driver parse without an end. No timeout of an
event loop interrupts that, and no other thread runs meanwhile.
"""

import asyncio
import os
import signal
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from multiprocessing import connection, get_context
from multiprocessing.context import ForkProcess

from service.doctor.backends.postgres_server import ConnectionDemand
from service.doctor.finding import Finding, Subject

CHECK_TIMEOUT_S = 5.0
END_TIMEOUT_S = 0.5  # after the timeout; a check that ignores its cancellation is abandoned then
_BUG_REMEDY = "inspect the subject manually, and report this as a bug"
# Forked: the checks hold objects that cannot be pickled, and a fork shares memory, which is scarce
# in the sidecar's container. Not to be called while other threads run.
_FORK = get_context("fork")

CheckResult = Finding | ConnectionDemand  # all demands of a server make one finding at the end
Inspection = Iterator[CheckResult] | AsyncGenerator[CheckResult, None]


@dataclass(frozen=True, slots=True)
class Check:
    """A subject, and the function that inspects it without changing anything.

    `inspect` yields each result as soon as it is known, since a later step may hang; an iterator
    runs in a thread. Expected failures are findings; an exception is reported as a fault of the
    check itself. Cancellation closes all connections.
    """

    subject: Subject  # also named if the check times out
    inspect: Callable[[Subject], Inspection]


Stages = Sequence[Sequence[Check]]


@dataclass(frozen=True, slots=True)
class _Run:
    """A check with its results so far."""

    number: int
    check: Check
    results: list[CheckResult] = field(default_factory=list)

    async def inspect(self, timeout_s: float) -> None:
        found = self.check.inspect(self.check.subject)
        try:
            async with asyncio.timeout(timeout_s):
                if isinstance(found, Iterator):
                    await asyncio.to_thread(self._add_all, found)
                    return
                async with aclosing(found):
                    async for result in found:
                        self.results.append(result)
        except TimeoutError:
            self.results.append(_timeout_finding(self.check, timeout_s))
        except Exception as error:  # noqa: BLE001  # one broken check must not hide the others
            message = f"the check failed: {type(error).__name__}"
            self.results.append(self.check.subject.error(message, _BUG_REMEDY))

    def _add_all(self, found: Iterator[CheckResult]) -> None:
        for result in found:
            self.results.append(result)  # one by one: the next may hang


def _timeout_finding(check: Check, timeout_s: float) -> Finding:
    message = f"no answer within {timeout_s:g} s"
    return check.subject.error(message, "check that it responds, and is reachable from here")


async def ended_checks(
    stages: Stages, *, timeout_s: float = CHECK_TIMEOUT_S
) -> AsyncGenerator[tuple[int, Sequence[CheckResult]], None]:
    """Run all checks; yield the number and the results of each at its end.

    The checks of a stage run concurrently, after the end of the stage before. A stage takes at
    most `timeout_s` plus half a second.
    """
    loop = asyncio.get_running_loop()
    started = 0
    for checks in stages:
        deadline_s = loop.time() + timeout_s + END_TIMEOUT_S
        runs = [_Run(number, check) for number, check in enumerate(checks, started)]
        started += len(checks)
        pending = {asyncio.create_task(run.inspect(timeout_s)): run for run in runs}
        while pending:
            ended, _ = await asyncio.wait(
                pending,
                timeout=deadline_s - loop.time(),
                return_when=asyncio.FIRST_COMPLETED,
            )
            for task in ended or list(pending):
                run = pending.pop(task)
                if not task.done():
                    run.results.append(_timeout_finding(run.check, timeout_s))
                yield run.number, tuple(run.results)  # an abandoned check may still add to its own


@dataclass(slots=True, eq=False)
class _Group:
    """A process that runs stages of checks, and the results received from it."""

    stages: Stages
    process: ForkProcess
    receiver: connection.Connection
    results: dict[int, Sequence[CheckResult]] = field(default_factory=dict)  # by check number

    def all_results(self, limit_s: float) -> Iterator[CheckResult]:
        """Yield the results, and a finding for each check that did not end."""
        number = 0
        is_blocked = False  # the stage after an unfinished one did not start
        for checks in self.stages:
            has_started = not is_blocked
            for check in checks:
                if number in self.results:
                    yield from self.results[number]
                else:
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


def run_groups(
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


def _receive_all(groups: Sequence[_Group], deadline_s: float) -> None:
    open_groups = list(groups)
    while open_groups:
        receivers = [group.receiver for group in open_groups]
        ready = connection.wait(receivers, max(deadline_s - time.monotonic(), 0.0))
        if not ready:
            return
        for group in [group for group in open_groups if group.receiver in ready]:
            try:
                number, found = group.receiver.recv()
            except (EOFError, OSError):  # OSError: the process ended within a message
                open_groups.remove(group)
            else:
                group.results[number] = found


def _run_group(
    stages: Stages, sender: connection.Connection, *, timeout_s: float, limit_s: float
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its children
    # If the parent has died, the kernel ends this process.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, limit_s + 2 * END_TIMEOUT_S)

    async def run() -> None:
        async for ended in ended_checks(stages, timeout_s=timeout_s):
            sender.send(ended)
        os._exit(0)  # at once, even if a thread of a check is still blocked

    asyncio.run(run())
