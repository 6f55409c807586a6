"""Check plan: the checks for a configuration, and those that were skipped."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lookup_core.errors import ConfigurationError
from lookup_core.settings import CacheMode
from service.config.settings import Settings
from service.config.source import ParquetSource
from service.doctor.backends.database_check import DatabaseCheck
from service.doctor.backends.kafka_check import KafkaCheck
from service.doctor.backends.parquet_check import ParquetCheck
from service.doctor.backends.postgres_server import postgres_places
from service.doctor.backends.table_check import TableCheck
from service.doctor.check import Check
from service.doctor.deployment.container_findings import SidecarNeeds
from service.doctor.deployment.kubernetes_check import KubernetesCheck
from service.doctor.deployment.pod_template import PodTemplateCheck
from service.doctor.deployment.spark_check import SparkCheck, read_spark_conf
from service.doctor.finding import Finding, Subject
from service.doctor.sidecar.configuration_check import CHECK, ConfigurationCheck
from service.doctor.sidecar.process_limits_check import ProcessLimitsCheck
from service.doctor.sidecar.secrets_check import CertificateCheck, SecretsCheck
from service.doctor.sidecar.sidecar_check import AskSidecar, SidecarCheck
from service.doctor.sidecar.socket_check import SocketCheck
from service.resources.memory_shares import MemoryShares

IMAGE_CONFIG = "/etc/sidelook/sidelook.yaml"  # where the manifests mount it


@dataclass(frozen=True, slots=True)
class SkippedCheck:
    """One finding: why it was not looked at, and what would let it be."""

    matter: Subject
    reason: str
    remedy: str

    async def findings(self) -> AsyncGenerator[Finding, None]:
        """One."""
        yield self.matter.skipped(self.reason, self.remedy)


def missing_configuration() -> SkippedCheck:
    """For the configuration and all that it names, where --config was left out."""
    return SkippedCheck(
        Subject(CHECK, "--config"),
        "no configuration is named: neither it nor its stores and secrets were looked at",
        f"name the sidecar's file with --config; in the image --config {IMAGE_CONFIG}",
    )


def unknown_sidecar(file: str) -> SkippedCheck:
    """For the sidecar of a configuration with faults: the usual place may be another one's."""
    return SkippedCheck(
        Subject("sidecar", file),
        "where it listens is not known, as the configuration cannot be loaded",
        "correct it, or name the sidecar with --endpoint",
    )


_TABLES_AT_ONCE = 4  # of one database


@dataclass(frozen=True, slots=True)
class RunningSidecar:
    """The sidecar that is asked, and its socket, if it is on this machine."""

    endpoint: str
    ask: AskSidecar
    socket: Path | None = None
    token_origin: str | None = None  # the option or setting whose token it is shown


@dataclass(frozen=True, slots=True)
class Deployment:
    """What is told of where executors run."""

    executors: int | None = None
    kubernetes: str | None = None
    pod_template: Path | None = None
    spark_conf: Path | None = None
    spark: tuple[int, int] | None = None
    network_policy: Path | None = None


@dataclass(frozen=True, slots=True)
class Configured:
    """A configuration, or the faults for which there is none."""

    file: Path
    settings: Settings | None = None
    faults: Sequence[str] = ()


def plan(
    configured: Configured | None,
    sidecar: RunningSidecar | SkippedCheck | None,
    deployment: Deployment,
) -> list[list[Check]]:
    """The checks in stages: tables after their databases."""
    settings = None if configured is None else configured.settings
    first: list[Check] = [
        missing_configuration()
        if configured is None
        else ConfigurationCheck(str(configured.file), configured.settings, configured.faults)
    ]
    if sidecar is not None:
        first += _of_sidecar(sidecar, settings)
    databases: list[DatabaseCheck] = []
    second: list[Check] = []
    if configured is not None and settings is not None:
        first.append(SecretsCheck(settings))
        if settings.listen.tls is not None:
            first.append(CertificateCheck(settings.listen.tls))
        # A secret that vanished since it was checked is a finding of its own check.
        with suppress(OSError):
            databases = [DatabaseCheck(place) for place in postgres_places(settings.dimensions)]
        second += _tables(databases, configured.file, settings)
        first += [*databases, *_others(settings)]
    first += _of_deployment(deployment, settings)
    return [first, second]


def groups(stages: Sequence[Sequence[Check]]) -> list[list[list[Check]]]:
    """The same, each database with its tables apart from all else, and in stages, too."""
    every = [check for stage in stages for check in stage]
    databases = [check for check in every if isinstance(check, DatabaseCheck)]
    return [
        [[check for check in stage if _database_of(check) is database] for stage in stages]
        for database in (None, *databases)
    ]


def _database_of(check: Check) -> DatabaseCheck | None:
    if isinstance(check, TableCheck):
        return check.database
    return check if isinstance(check, DatabaseCheck) else None


def _of_sidecar(
    sidecar: RunningSidecar | SkippedCheck, settings: Settings | None
) -> Iterator[Check]:
    if isinstance(sidecar, SkippedCheck):
        yield sidecar
    else:
        yield from _of_running(sidecar, settings)
    yield ProcessLimitsCheck(None if settings is None else settings.limits.memory_bytes)


def _of_running(sidecar: RunningSidecar, settings: Settings | None) -> Iterator[Check]:
    if sidecar.socket is not None:
        yield SocketCheck(sidecar.socket)
    names = None if settings is None else tuple(settings.dimensions)
    yield SidecarCheck(sidecar.endpoint, sidecar.ask, names, sidecar.token_origin)


def _tables(databases: Sequence[DatabaseCheck], file: Path, settings: Settings) -> Iterator[Check]:
    wanted_bytes = sum(
        each.cache.max_bytes
        for each in settings.dimensions.values()
        if each.cache.mode is not CacheMode.NONE
    )
    scale = MemoryShares(settings.limits.memory_bytes).cache_scale(wanted_bytes)
    for database in databases:
        turns = asyncio.Semaphore(_TABLES_AT_ONCE)
        for name, config in database.place.dimensions.items():
            yield TableCheck(name, config, database, turns, file, scale)


def _others(settings: Settings) -> Iterator[Check]:
    for name, config in settings.dimensions.items():
        if isinstance(config.source, ParquetSource):
            yield ParquetCheck(name, config)
        if config.refresh.changelog is not None:
            yield KafkaCheck(name, config.refresh.changelog)


def _of_deployment(deployment: Deployment, settings: Settings | None) -> Iterator[Check]:
    yield KubernetesCheck(deployment.kubernetes)
    template, conf = deployment.pod_template, deployment.spark_conf
    if template is not None:
        yield PodTemplateCheck(
            template,
            socket=None if settings is None else settings.listen.unix,
            needs=SidecarNeeds() if settings is None else SidecarNeeds.of(settings),
            checks_all=conf is None or _checks_all_containers(conf),
        )
    if conf is not None:
        yield SparkCheck(conf, deployment.spark, template, deployment.network_policy)


def _checks_all_containers(conf: Path) -> bool:
    try:
        return read_spark_conf(conf).checks_all_containers
    except ConfigurationError:
        return True  # Spark's own word for it; that the file cannot be read is told of by its check
