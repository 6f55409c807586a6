"""Check plan: the checks for a configuration, a running sidecar and a deployment."""

import asyncio
from collections.abc import Iterator, Sequence
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
from service.doctor.check_runner import Check, Stages
from service.doctor.deployment.kubernetes_check import check_kubernetes
from service.doctor.deployment.spark_check import Deployment, check_executors
from service.doctor.finding import Subject
from service.doctor.sidecar.configuration_check import CHECK, CacheDemand, check_configuration
from service.doctor.sidecar.process_limits_check import check_process_limits
from service.doctor.sidecar.secrets_check import check_certificate, check_secrets
from service.doctor.sidecar.sharing_check import check_shared_memory
from service.doctor.sidecar.sidecar_check import SidecarGet, check_sidecar
from service.doctor.sidecar.socket_check import check_socket

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
    """A configuration file with its settings, or with the faults that prevent loading."""

    file: Path
    settings: Settings | None = None
    faults: Sequence[str] = ()


def plan(
    configured: Configured | None, sidecar: RunningSidecar | Check | None, deployment: Deployment
) -> list[Stages]:
    """Return the checks: a group for each database, whose tables follow it, after all others."""
    settings = None if configured is None else configured.settings
    checks = [_configuration_check(configured)]
    if isinstance(sidecar, Check):
        checks.append(sidecar)
    elif sidecar is not None:
        checks += _sidecar_checks(sidecar, settings)
    if sidecar is not None:
        memory_bytes = None if settings is None else settings.limits.memory_bytes
        inspect = partial(check_process_limits, memory_bytes=memory_bytes)
        checks.append(Check(Subject("limits", "control group"), inspect))
    if settings is not None:
        checks += _settings_checks(settings, is_sidecar_checked=sidecar is not None)
    given = deployment.kubernetes
    checks.append(Check(Subject("kubernetes", "cluster"), partial(check_kubernetes, given=given)))
    if file := deployment.pod_template or deployment.spark_conf:
        name = "spark" if deployment.pod_template is None else "pod template"
        inspect_files = partial(check_executors, deployment=deployment)
        checks.append(Check(Subject(name, str(file)), inspect_files))
    groups: list[Stages] = [[checks]]
    if configured is not None and settings is not None:
        # The secrets check reports a file that has vanished since the configuration was loaded.
        with suppress(OSError):
            groups += _database_groups(settings, configured.file)
    return groups


def _skipped_check(subject: Subject, reason: str, remedy: str) -> Check:
    """Return a check that yields one finding: why the subject cannot be checked."""
    return Check(subject, lambda subject: iter([subject.skipped(reason, remedy)]))


def unknown_sidecar(file: str) -> Check:
    """Return the replacement of the sidecar's check, if its configuration has faults.

    The default socket is not used: another sidecar may listen there.
    """
    return _skipped_check(
        Subject("sidecar", file),
        "its address is unknown, because the configuration cannot be loaded",
        "correct the configuration, or name the sidecar with --endpoint",
    )


def _configuration_check(configured: Configured | None) -> Check:
    if configured is None:
        return _skipped_check(
            Subject(CHECK, "--config"),
            "no configuration is given: its backends and secrets were not checked",
            f"name the sidecar's file with --config; in the image --config {IMAGE_CONFIG}",
        )
    settings, faults = configured.settings, configured.faults
    inspect = partial(check_configuration, settings=settings, faults=faults)
    return Check(Subject(CHECK, str(configured.file)), inspect)


def _sidecar_checks(sidecar: RunningSidecar, settings: Settings | None) -> Iterator[Check]:
    if sidecar.socket is not None:
        inspect_socket = partial(check_socket, path=sidecar.socket)
        yield Check(Subject("socket", str(sidecar.socket)), inspect_socket)
    inspect = partial(
        check_sidecar,
        get=sidecar.get,
        socket=sidecar.socket,
        configured=None if settings is None else tuple(settings.dimensions),
        token_origin=sidecar.token_origin,
    )
    yield Check(Subject("sidecar", sidecar.endpoint), inspect)


def _settings_checks(settings: Settings, *, is_sidecar_checked: bool) -> Iterator[Check]:
    yield Check(Subject("secrets", "files"), partial(check_secrets, settings=settings))
    socket, needed_bytes = settings.listen.unix, CacheDemand.of(settings).shared_bytes
    if socket is not None and needed_bytes:
        inspect = partial(
            check_shared_memory,
            socket=socket,
            needed_bytes=needed_bytes,
            is_sidecar_checked=is_sidecar_checked,
        )
        yield Check(Subject("shared memory", str(socket.parent)), inspect)
    if (tls := settings.listen.tls) is not None:
        yield Check(Subject("tls", str(tls.cert_file)), partial(check_certificate, tls=tls))
    for name, config in settings.dimensions.items():
        if isinstance(config.source, ParquetSource):
            yield Check(Subject("table", name), partial(check_parquet, config=config))
        changelog = config.refresh.changelog
        if changelog is not None:
            subject = Subject("kafka", f"{name}: {changelog.topic}")
            yield Check(subject, partial(check_kafka, changelog=changelog))


def _database_groups(settings: Settings, file: Path) -> Iterator[Stages]:
    scale = CacheDemand.of(settings).scale
    for database in databases_of(settings):
        subject = Subject("database", database.address)
        of_tables = TableCheck(database, asyncio.Semaphore(_DATABASE_SLOTS), file, scale)
        yield [
            [Check(subject, partial(check_database, database=database))],
            [Check(Subject("table", name), of_tables.inspect) for name in database.dimensions],
        ]
