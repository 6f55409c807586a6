"""Check plan: the checks for a configuration, a running sidecar and a deployment."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lookup_core.errors import ConfigurationError
from service.config.settings import Settings
from service.config.source import ParquetSource
from service.doctor.backends.database_check import check_database
from service.doctor.backends.kafka_check import check_kafka
from service.doctor.backends.postgres_server import Database, databases_of
from service.doctor.backends.table_check import TableCheck, check_parquet
from service.doctor.check_runner import Check
from service.doctor.deployment.kubernetes_check import check_kubernetes
from service.doctor.deployment.pod_template import DEFAULT_NEEDS, SidecarNeeds, check_pod_template
from service.doctor.deployment.spark_check import check_spark, read_spark_conf
from service.doctor.finding import Finding, Subject
from service.doctor.sidecar.configuration_check import CHECK, CacheMemory, check_configuration
from service.doctor.sidecar.process_limits_check import check_process_limits
from service.doctor.sidecar.secrets_check import check_certificate, check_secrets
from service.doctor.sidecar.sharing_check import check_shared_memory
from service.doctor.sidecar.sidecar_check import SidecarGet, check_sidecar
from service.doctor.sidecar.socket_check import check_socket

IMAGE_CONFIG = "/etc/sidelook/sidelook.yaml"  # where the manifests mount it
_TABLES_AT_ONCE = 4  # of one database


def skipped_check(subject: Subject, reason: str, remedy: str) -> Check:
    """Return a check that yields one finding: why the subject cannot be checked."""

    async def inspect(subject: Subject) -> AsyncGenerator[Finding, None]:
        yield subject.skipped(reason, remedy)

    return Check(subject, inspect)


def missing_configuration() -> Check:
    """Return the replacement of all checks of a configuration, without --config."""
    return skipped_check(
        Subject(CHECK, "--config"),
        "no configuration is given: its backends and secrets were not checked",
        f"name the sidecar's file with --config; in the image --config {IMAGE_CONFIG}",
    )


def unknown_sidecar(file: str) -> Check:
    """Return the replacement of the sidecar's check, if its configuration has faults.

    The default socket is not used: another sidecar may listen there.
    """
    return skipped_check(
        Subject("sidecar", file),
        "its address is unknown, because the configuration cannot be loaded",
        "correct the configuration, or name the sidecar with --endpoint",
    )


@dataclass(frozen=True, slots=True)
class RunningSidecar:
    """The sidecar to query, and its socket if it is on this machine."""

    endpoint: str
    get: SidecarGet
    socket: Path | None = None
    token_origin: str | None = None  # option or setting that names the token's file


@dataclass(frozen=True, slots=True)
class Deployment:
    """Options that describe the executors and their cluster."""

    executors: int | None = None
    kubernetes: str | None = None
    pod_template: Path | None = None
    spark_conf: Path | None = None
    spark: tuple[int, int] | None = None
    network_policy: Path | None = None


@dataclass(frozen=True, slots=True)
class Configured:
    """A configuration file with its settings, or with the faults that prevent loading."""

    file: Path
    settings: Settings | None = None
    faults: Sequence[str] = ()


def plan(
    configured: Configured | None, sidecar: RunningSidecar | Check | None, deployment: Deployment
) -> list[list[Check]]:
    """Return the checks in two stages: tables run after their databases."""
    settings = None if configured is None else configured.settings
    first: list[Check] = []
    tables: list[Check] = []
    if configured is None:
        first.append(missing_configuration())
    else:
        inspect = partial(check_configuration, settings=settings, faults=configured.faults)
        first.append(Check(Subject(CHECK, str(configured.file)), inspect))
    if sidecar is not None:
        first += _sidecar_checks(sidecar, settings)
    if configured is not None and settings is not None:
        first.append(Check(Subject("secrets", "files"), partial(check_secrets, settings=settings)))
        first += _shared_memory_checks(settings, is_sidecar_checked=sidecar is not None)
        if (tls := settings.listen.tls) is not None:
            inspect_tls = partial(check_certificate, tls=tls)
            first.append(Check(Subject("tls", str(tls.cert_file)), inspect_tls))
        databases: list[Database] = []
        # The secrets check reports a file that has vanished since the configuration was loaded.
        with suppress(OSError):
            databases = databases_of(settings)
        for each in databases:
            subject = Subject("database", each.address)
            first.append(Check(subject, partial(check_database, database=each), each))
        tables += _table_checks(databases, configured.file, settings)
        first += _dimension_checks(settings)
    first += _deployment_checks(deployment, settings)
    return [first, tables]


def groups(stages: Sequence[Sequence[Check]]) -> list[list[list[Check]]]:
    """Return the stages as groups: one per database with its tables, and one for the rest."""
    databases = [None, *(check.database for stage in stages for check in stage)]
    return [
        [[check for check in stage if check.database is database] for stage in stages]
        for database in dict.fromkeys(databases)
    ]


def _sidecar_checks(sidecar: RunningSidecar | Check, settings: Settings | None) -> Iterator[Check]:
    if isinstance(sidecar, Check):
        yield sidecar
    else:
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
    memory_bytes = None if settings is None else settings.limits.memory_bytes
    yield Check(
        Subject("limits", "control group"), partial(check_process_limits, memory_bytes=memory_bytes)
    )


def _shared_memory_checks(settings: Settings, *, is_sidecar_checked: bool) -> Iterator[Check]:
    socket, needed_bytes = settings.listen.unix, SidecarNeeds.of(settings).shared_bytes
    if socket is not None and needed_bytes:
        inspect = partial(
            check_shared_memory,
            socket=socket,
            needed_bytes=needed_bytes,
            is_sidecar_checked=is_sidecar_checked,
        )
        yield Check(Subject("shared memory", str(socket.parent)), inspect)


def _table_checks(databases: Sequence[Database], file: Path, settings: Settings) -> Iterator[Check]:
    scale = CacheMemory.of(settings).scale
    for database in databases:
        of_tables = TableCheck(database, asyncio.Semaphore(_TABLES_AT_ONCE), file, scale)
        for name in database.dimensions:
            yield Check(Subject("table", name), of_tables.inspect, database)


def _dimension_checks(settings: Settings) -> Iterator[Check]:
    for name, config in settings.dimensions.items():
        if isinstance(config.source, ParquetSource):
            yield Check(Subject("table", name), partial(check_parquet, config=config))
        changelog = config.refresh.changelog
        if changelog is not None:
            subject = Subject("kafka", f"{name}: {changelog.topic}")
            yield Check(subject, partial(check_kafka, changelog=changelog))


def _deployment_checks(deployment: Deployment, settings: Settings | None) -> Iterator[Check]:
    inspect_cluster = partial(check_kubernetes, given=deployment.kubernetes)
    yield Check(Subject("kubernetes", "cluster"), inspect_cluster)
    template, conf = deployment.pod_template, deployment.spark_conf
    if template is not None:
        inspect = partial(
            check_pod_template,
            file=template,
            socket=None if settings is None else settings.listen.unix,
            needs=DEFAULT_NEEDS if settings is None else SidecarNeeds.of(settings),
            checks_all=conf is None or _checks_all_containers(conf),
        )
        yield Check(Subject("pod template", str(template)), inspect)
    if conf is not None:
        inspect_conf = partial(
            check_spark,
            file=conf,
            version=deployment.spark,
            pod_template=template,
            network_policy=deployment.network_policy,
        )
        yield Check(Subject("spark", str(conf)), inspect_conf)


def _checks_all_containers(conf: Path) -> bool:
    try:
        return read_spark_conf(conf).checks_all_containers
    except ConfigurationError:
        return True  # Spark's default; the Spark check reports the unreadable file
