"""Check plan: the checks for a configuration, a running sidecar and a deployment."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lookup_core.errors import ConfigurationError
from service.config.settings import Settings
from service.config.source import ParquetSource
from service.doctor.backends.database_check import DatabaseCheck
from service.doctor.backends.kafka_check import KafkaCheck
from service.doctor.backends.postgres_server import postgres_targets
from service.doctor.backends.table_check import ParquetCheck, TableCheck
from service.doctor.check import Check
from service.doctor.deployment.container_findings import SidecarNeeds
from service.doctor.deployment.kubernetes_check import KubernetesCheck
from service.doctor.deployment.pod_template import PodTemplateCheck
from service.doctor.deployment.spark_check import SparkCheck, read_spark_conf
from service.doctor.finding import Finding, Subject
from service.doctor.sidecar.configuration_check import CHECK, CacheMemory, ConfigurationCheck
from service.doctor.sidecar.process_limits_check import ProcessLimitsCheck
from service.doctor.sidecar.secrets_check import CertificateCheck, SecretsCheck
from service.doctor.sidecar.sidecar_check import SidecarCheck, SidecarGet
from service.doctor.sidecar.socket_check import SocketCheck

IMAGE_CONFIG = "/etc/sidelook/sidelook.yaml"  # where the manifests mount it
_TABLES_AT_ONCE = 4  # of one database


@dataclass(frozen=True, slots=True)
class SkippedCheck:
    """A check that cannot run: one finding with the reason and a remedy."""

    subject: Subject
    reason: str
    remedy: str

    async def findings(self) -> AsyncGenerator[Finding, None]:
        """Yield the one finding."""
        yield self.subject.skipped(self.reason, self.remedy)


def missing_configuration() -> SkippedCheck:
    """Return the check that replaces all checks of the configuration without --config."""
    return SkippedCheck(
        Subject(CHECK, "--config"),
        "no configuration is given: its backends and secrets were not checked",
        f"name the sidecar's file with --config; in the image --config {IMAGE_CONFIG}",
    )


def unknown_sidecar(file: str) -> SkippedCheck:
    """Return the check that replaces the sidecar's, if its configuration has faults.

    The default socket is not used: another sidecar may listen there.
    """
    return SkippedCheck(
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
    configured: Configured | None,
    sidecar: RunningSidecar | SkippedCheck | None,
    deployment: Deployment,
) -> list[list[Check]]:
    """Return the checks in two stages: tables run after their databases."""
    settings = None if configured is None else configured.settings
    first: list[Check] = [
        missing_configuration()
        if configured is None
        else ConfigurationCheck(str(configured.file), configured.settings, configured.faults)
    ]
    if sidecar is not None:
        first += _sidecar_checks(sidecar, settings)
    databases: list[DatabaseCheck] = []
    second: list[Check] = []
    if configured is not None and settings is not None:
        first.append(SecretsCheck(settings))
        if settings.listen.tls is not None:
            first.append(CertificateCheck(settings.listen.tls))
        # The secrets check reports a file that has vanished since the configuration was loaded.
        with suppress(OSError):
            databases = [DatabaseCheck(each) for each in postgres_targets(settings.dimensions)]
        second += _table_checks(databases, configured.file, settings)
        first += [*databases, *_dimension_checks(settings)]
    first += _deployment_checks(deployment, settings)
    return [first, second]


def groups(stages: Sequence[Sequence[Check]]) -> list[list[list[Check]]]:
    """Return the stages as groups: one per database with its tables, and one for the rest."""
    databases = [check for stage in stages for check in stage if isinstance(check, DatabaseCheck)]
    return [
        [[check for check in stage if _database_of(check) is database] for stage in stages]
        for database in (None, *databases)
    ]


def _database_of(check: Check) -> DatabaseCheck | None:
    if isinstance(check, TableCheck):
        return check.database
    return check if isinstance(check, DatabaseCheck) else None


def _sidecar_checks(
    sidecar: RunningSidecar | SkippedCheck, settings: Settings | None
) -> Iterator[Check]:
    if isinstance(sidecar, SkippedCheck):
        yield sidecar
    else:
        if sidecar.socket is not None:
            yield SocketCheck(sidecar.socket)
        names = None if settings is None else tuple(settings.dimensions)
        yield SidecarCheck(sidecar.endpoint, sidecar.get, names, sidecar.token_origin)
    yield ProcessLimitsCheck(None if settings is None else settings.limits.memory_bytes)


def _table_checks(
    databases: Sequence[DatabaseCheck], file: Path, settings: Settings
) -> Iterator[Check]:
    scale = CacheMemory.of(settings).scale
    for database in databases:
        slots = asyncio.Semaphore(_TABLES_AT_ONCE)
        for name, config in database.target.dimensions.items():
            yield TableCheck(name, config, database, slots, file, scale)


def _dimension_checks(settings: Settings) -> Iterator[Check]:
    for name, config in settings.dimensions.items():
        if isinstance(config.source, ParquetSource):
            yield ParquetCheck(name, config)
        if config.refresh.changelog is not None:
            yield KafkaCheck(name, config.refresh.changelog)


def _deployment_checks(deployment: Deployment, settings: Settings | None) -> Iterator[Check]:
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
        return True  # Spark's default; the Spark check reports the unreadable file
