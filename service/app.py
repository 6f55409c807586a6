"""Composition root of the sidecar: wires, opens and closes its parts.

Decides only the order of start and stop.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from lookup_core.protocol.credit_ledger import RECORD_BYTES
from lookup_core.settings import CacheMode
from service.bound_sockets import BoundSockets
from service.config.section import copied
from service.config.settings import Settings
from service.config.source import ParquetSource
from service.engine.dimension import Dimension
from service.engine.tracer import Tracer
from service.http.application import ServiceParts
from service.http.limits import AnswerByteBudget, BodyByteBudget, RequestLimits
from service.http.readiness import Readiness
from service.http.routes.status import ProcessStatistics
from service.http.status_history import StatusHistory
from service.listeners import certificate_rotation, listeners
from service.observability.collector import Collector
from service.observability.event_loop import Watchdog
from service.observability.load_bars import LoadBars
from service.observability.logs import configure_logs, log_loop_error
from service.observability.prometheus_observer import PrometheusObserver, exposition
from service.resources.memory_guard import MemoryGuard, PressureMeasures
from service.resources.memory_reading import ProcessMemory
from service.resources.memory_shares import MemoryShares
from service.resources.shared_memory import SharedCaches
from service.stream.handler import StreamHandler, StreamLimits
from service.tls.server_certificate import CertificateRotation
from service.version import own_version
from service.wiring.cache_demand import CacheDemand
from service.wiring.configured_parts import ConfiguredParts, database_shares
from service.wiring.configured_tracer import opened_tracer

log = structlog.get_logger()

DRAIN_S = 10.0  # for lookups in flight when the drain begins
_POLL_S = 0.02
_STREAM_MESSAGE_BYTES = 4 * 1024 * 1024


async def run(
    settings: Settings,
    sockets: BoundSockets,
    *,
    file: Path | None = None,
    until_eof: bool = False,
) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP, then drain: lookups are answered within 10 s.

    `file` is the configuration file. With `until_eof` the end of standard input, a pipe, stops it,
    too. Raises ConfigurationError if a certificate cannot be read.
    """
    sink = configure_logs(sys.stderr, level="info")
    stopped = _stop_signal()
    if until_eof:
        _stop_at_eof(sys.stdin.fileno(), stopped)
    observer = PrometheusObserver()
    certificate = certificate_rotation(settings)
    async with AsyncExitStack() as stack:
        tracer = await stack.enter_async_context(opened_tracer(settings, version=own_version()))
        caches = SharedCaches.for_socket(settings.listen.unix)
        make = partial(Dimension, observer=observer, tracer=tracer, shared_caches=caches)
        dimensions = await _dimensions(settings, file, make, stack=stack)
        served = serving(
            settings, dimensions, observer=observer, tracer=tracer, certificate=certificate
        )
        stack.enter_context(served.watchdog.watching())
        bars = LoadBars(sink, lambda: {n: each.load_statistics() for n, each in dimensions.items()})
        running = await stack.enter_async_context(asyncio.TaskGroup())
        runs = [caches.run, bars.run, *(each.run for each in dimensions.values())]
        tasks = [running.create_task(each()) for each in (*runs, *served.runs)]
        async with listeners(settings, served.parts, sockets, certificate=certificate):
            await stopped.wait()
            log.info("service.draining")
            caches.drain()
            served.parts.readiness.start_draining()
            await drain(served.streams, dimensions, timeout_s=DRAIN_S)
        for task in tasks:
            task.cancel()
    log.info("service.stopped")


def _stop_signal() -> asyncio.Event:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(log_loop_error)
    numbers = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as `nohup` sets it
        numbers.append(signal.SIGHUP)
    for number in numbers:
        loop.add_signal_handler(number, stopped.set)
    return stopped


def _stop_at_eof(descriptor: int, stopped: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()

    def on_readable() -> None:
        if not os.read(descriptor, 4096):  # what is written has no meaning
            loop.remove_reader(descriptor)
            stopped.set()

    loop.add_reader(descriptor, on_readable)


async def drain(
    streams: StreamHandler, dimensions: Mapping[str, Dimension], *, timeout_s: float
) -> None:
    """Wait for lookups in flight, at most this long."""
    async with asyncio.TaskGroup() as draining:
        draining.create_task(streams.drain(timeout_s))
        draining.create_task(_wait_for_lookups(dimensions, timeout_s))


async def _wait_for_lookups(dimensions: Mapping[str, Dimension], timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            # Polls, once per process: an event would add work to every lookup.
            while any(each.is_waited_for for each in dimensions.values()):  # noqa: ASYNC110
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        log.warning("service.drain_incomplete")


async def _dimensions(
    settings: Settings,
    file: Path | None,
    make: Callable[..., Dimension],
    *,
    stack: AsyncExitStack,
) -> dict[str, Dimension]:
    # Keys of streams are bounded by credit; the configured limit is for HTTP requests.
    credit_keys = MemoryShares(settings.limits.memory_bytes).credit_bytes // RECORD_BYTES
    shares = database_shares(settings)
    for each in dict.fromkeys(share.pool for share in shares.values()):
        await stack.enter_async_context(each)
    dimensions, row_bytes = {}, settings.limits.row_bytes
    for name, config in settings.dimensions.items():
        share = shares.get(name)
        pool = None if share is None else share.pool
        parts = ConfiguredParts(name, config, file=file, pool=pool, row_bytes=row_bytes)
        backend = await stack.enter_async_context(parts.backend())
        engine = config.engine_settings(name)
        engine = replace(engine, max_waiting_keys=engine.max_waiting_keys + credit_keys)
        connections = None if share is None else share.connections
        dimensions[name] = make(engine, backend, connections=connections, sources=parts.sources())
    return dimensions


@dataclass(frozen=True, slots=True)
class Serving:
    """What serves the dimensions: streams, memory guard, readiness, metrics and status."""

    parts: ServiceParts
    streams: StreamHandler
    guard: MemoryGuard
    watchdog: Watchdog
    runs: Sequence[Callable[[], Coroutine[Any, Any, None]]]  # until cancelled


def serving(
    settings: Settings,
    dimensions: Mapping[str, Dimension],
    *,
    observer: PrometheusObserver,
    tracer: Tracer,
    certificate: CertificateRotation | None = None,
) -> Serving:
    """The parts that serve these dimensions; limits the caches to their shares of the memory."""
    limits, shares = settings.limits, MemoryShares(settings.limits.memory_bytes)
    streams = StreamHandler(
        dimensions,
        StreamLimits(
            max_channels=limits.channels,
            credit_bytes=shares.credit_bytes,
            answer_bytes=shares.stream_answer_bytes,
            # Credit allows a LOOKUP of this size, also if HTTP requests may not have it.
            max_message_bytes=max(limits.request_bytes, _STREAM_MESSAGE_BYTES),
        ),
        agent=f"sidelook/{own_version()}",
        tracer=tracer,
    )
    readiness, watchdog = Readiness(dimensions), Watchdog()
    limit_caches = _cache_limit(settings, dimensions)
    limit_caches(1.0)
    guard = MemoryGuard(
        ProcessMemory().read,
        PressureMeasures(limit_caches, streams.registry.allow_growth, readiness.allow_requests),
        limit_bytes=shares.total_bytes,
        is_settled=partial(_are_settled, _unevictable(settings), readiness),
    )
    watched = _Watched(dimensions, streams, readiness, watchdog, guard)
    metrics = partial(exposition, observer, _collector(watched, certificate))
    parts = _service_parts(settings, shares, watched, metrics=metrics, tracer=tracer)
    runs = (watchdog.run, guard.run, parts.history.run, streams.run)
    return Serving(parts, streams, guard, watchdog, runs)


@dataclass(frozen=True, slots=True)
class _Watched:
    """The parts whose statistics metrics and status show."""

    dimensions: Mapping[str, Dimension]
    streams: StreamHandler
    readiness: Readiness
    watchdog: Watchdog
    guard: MemoryGuard


def _cache_limit(
    settings: Settings, dimensions: Mapping[str, Dimension]
) -> Callable[[float], None]:
    """Limits the caches to a share, 0 to 1, of the memory that they have by the settings."""
    demand = CacheDemand.of(settings)
    demand.log_reductions()
    scale = demand.scale

    def limit_caches(share: float) -> None:
        for name, dimension in dimensions.items():
            # A full table evicts nothing: with less room it could not take its changes.
            is_full = settings.dimensions[name].cache.mode is CacheMode.FULL
            dimension.limit_cache(scale if is_full else share * scale)

    return limit_caches


def _unevictable(settings: Settings) -> frozenset[str]:
    """The dimensions with full tables or files, which are part of the base of the memory."""
    return frozenset(
        name
        for name, each in settings.dimensions.items()
        if each.cache.mode is CacheMode.FULL or isinstance(each.source, ParquetSource)
    )


def _are_settled(names: frozenset[str], readiness: Readiness) -> bool:
    """Whether these dimensions are described and started."""
    return names.isdisjoint((*readiness.undescribed(), *readiness.cold()))


def _collector(watched: _Watched, certificate: CertificateRotation | None) -> Collector:
    dimensions, streams, readiness = watched.dimensions, watched.streams, watched.readiness
    return Collector(
        dimensions=lambda: {name: each.statistics() for name, each in dimensions.items()},
        refreshes=lambda: {n: each.refresh_statistics() for n, each in dimensions.items()},
        channels=streams.registry.statistics,
        watermarks_ms=streams.watermarks_ms,
        undescribed=readiness.undescribed,
        uses_index=lambda: {name: each.backend.uses_index for name, each in dimensions.items()},
        lag_s=lambda: watched.watchdog.lag_s,
        is_reachable=lambda: readiness.unreachable is None,
        memory=watched.guard.statistics,
        version=own_version(),
        certificate=None if certificate is None else certificate.statistics,
    )


def _service_parts(
    settings: Settings,
    shares: MemoryShares,
    watched: _Watched,
    *,
    metrics: Callable[[], bytes],
    tracer: Tracer,
) -> ServiceParts:
    limits, streams = settings.limits, watched.streams
    return ServiceParts(
        dimensions=watched.dimensions,
        readiness=watched.readiness,
        channels=streams.registry.statistics,
        stream=streams.handle,
        metrics=metrics,
        version=own_version(),
        history=StatusHistory(watched.dimensions),
        ended_streams=streams.ended_streams,
        process=ProcessStatistics(
            shares.total_bytes,
            resident_bytes=lambda: watched.guard.statistics().resident_bytes,
            lag_s=lambda: watched.watchdog.lag_s,
        ),
        limits=copied(RequestLimits, limits),
        body_budget=BodyByteBudget(shares.body_bytes),
        answer_budget=AnswerByteBudget(shares.plain_answer_bytes),
        tracer=tracer,
    )
