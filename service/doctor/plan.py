"""Check plan: the checks for a configuration, a running sidecar and a deployment."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from service.config.settings import Settings
from service.config.source import ParquetSource
from service.doctor.backends.database_check import check_database
from service.doctor.backends.kafka_check import check_kafka
from service.doctor.backends.postgres_server import databases_of
from service.doctor.backends.table_check import TableCheck, check_parquet
from service.doctor.check_runner import Check, Inspection, Stages
from service.doctor.deployment.spark_check import Deployment, check_executors, check_kubernetes
from service.doctor.finding import Subject
from service.doctor.sidecar.configuration_check import (
    CHECK,
    check_configuration,
    check_process_limits,
)
from service.doctor.sidecar.secrets_check import check_certificate, check_secrets
from service.doctor.sidecar.sharing_check import check_shared_memory
from service.doctor.sidecar.sidecar_check import SidecarGet, check_sidecar
from service.doctor.sidecar.socket_check import check_socket
from service.wiring.cache_demand import CacheDemand

IMAGE_CONFIG = "/etc/sidelook/sidelook.yaml"  # where the manifests mount it
_DATABASE_SLOTS = 4


@dataclass(frozen=True, slots=True)
class RunningSidecar:
    """The sidecar to query, and its socket if it is on this machine."""

    endpoint: str
    get: SidecarGet
    socket: Path | None = None
    token_origin: str | None = None  # option or setting that names the token's file


@dataclass(frozen=True, slots=True)
class Configured:
    """A configuration file with its settings, or with the faults that prevent loading; or none."""

    file: Path | None = None
    settings: Settings | None = None
    faults: Sequence[str] = ()


def plan(
    configured: Configured, sidecar: RunningSidecar | Check | None, deployment: Deployment
) -> list[Stages]:
    """Return the checks: a group for each database, whose tables follow it, after all others."""
    settings, file = configured.settings, configured.file
    checks = [_configuration_check(configured)]
    if isinstance(sidecar, Check):
        checks.append(sidecar)
    elif sidecar is not None:
        checks += _sidecar_checks(sidecar, settings)
    if sidecar is not None:
        memory_bytes = None if settings is None else settings.limits.memory_bytes
        facts = {"memory_bytes": memory_bytes}
        checks.append(_check("limits", "control group", check_process_limits, **facts))
    if settings is not None:
        checks += _settings_checks(settings, is_sidecar_checked=sidecar is not None)
    checks.append(_check("kubernetes", "cluster", check_kubernetes, given=deployment.kubernetes))
    if described := deployment.pod_template or deployment.spark_conf:
        kind = "spark" if deployment.pod_template is None else "pod template"
        checks.append(_check(kind, str(described), check_executors, deployment=deployment))
    groups: list[Stages] = [[checks]]
    if settings is not None:
        # The secrets check reports a file that has vanished since the configuration was loaded.
        with suppress(OSError):
            groups += _database_groups(settings, file)
    return groups


def _check(kind: str, name: str, inspect: Callable[..., Inspection], **facts: object) -> Check:
    return Check(Subject(kind, name), partial(inspect, **facts))


def _skipped_check(kind: str, name: str, *, reason: str, remedy: str) -> Check:
    """Return a check that yields one finding: why the subject cannot be checked."""
    return _check(kind, name, lambda subject: iter([subject.skipped(reason, remedy)]))


def unknown_sidecar(file: str) -> Check:
    """Return the replacement of the sidecar's check, if its configuration has faults.

    The default socket is not used: another sidecar may listen there.
    """
    reason = "its address is unknown, because the configuration cannot be loaded"
    remedy = "correct the configuration, or name the sidecar with --endpoint"
    return _skipped_check("sidecar", file, reason=reason, remedy=remedy)


def _configuration_check(configured: Configured) -> Check:
    if configured.file is None:
        reason = "no configuration is given: its backends and secrets were not checked"
        remedy = f"name the sidecar's file with --config; in the image --config {IMAGE_CONFIG}"
        return _skipped_check(CHECK, "--config", reason=reason, remedy=remedy)
    faults = {"settings": configured.settings, "faults": configured.faults}
    return _check(CHECK, str(configured.file), check_configuration, **faults)


def _sidecar_checks(sidecar: RunningSidecar, settings: Settings | None) -> Iterator[Check]:
    if sidecar.socket is not None:
        yield _check("socket", str(sidecar.socket), check_socket, path=sidecar.socket)
    names = None if settings is None else tuple(settings.dimensions)
    facts = {"get": sidecar.get, "socket": sidecar.socket, "token_origin": sidecar.token_origin}
    yield _check("sidecar", sidecar.endpoint, check_sidecar, configured=names, **facts)


def _settings_checks(settings: Settings, *, is_sidecar_checked: bool) -> Iterator[Check]:
    yield _check("secrets", "files", check_secrets, settings=settings)
    socket, needed_bytes = settings.listen.unix, CacheDemand.of(settings).shared_bytes
    if socket is not None and needed_bytes:
        facts = {"needed_bytes": needed_bytes, "is_sidecar_checked": is_sidecar_checked}
        place = str(socket.parent)
        yield _check("shared memory", place, check_shared_memory, socket=socket, **facts)
    if (tls := settings.listen.tls) is not None:
        yield _check("tls", str(tls.cert_file), check_certificate, tls=tls)
    for name, config in settings.dimensions.items():
        if isinstance(config.source, ParquetSource):
            yield _check("table", name, check_parquet, config=config)
        if (changelog := config.refresh.changelog) is not None:
            yield _check("kafka", f"{name}: {changelog.topic}", check_kafka, changelog=changelog)


def _database_groups(settings: Settings, file: Path | None) -> Iterator[Stages]:
    scale = CacheDemand.of(settings).scale
    for database in databases_of(settings):
        of_tables = TableCheck(database, asyncio.Semaphore(_DATABASE_SLOTS), file, scale)
        yield [
            [_check("database", database.address, check_database, database=database)],
            [_check("table", name, of_tables.inspect) for name in database.dimensions],
        ]
