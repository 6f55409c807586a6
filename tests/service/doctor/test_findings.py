"""Findings and remedies for facts about a sidecar and its surroundings.

A case in `finding_tables/*.txt` is a line with a function and the facts that differ from
those of a healthy sidecar. Below it are the expected faults, or the findings if there is no fault.
"""

import errno
import stat
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lookup_core.dimension_schema import TableOrigin
from lookup_core.errors import BackendError, ErrorCode
from service.config.cache import Cache
from service.config.settings import Settings
from service.connectors.kafka.settings import KafkaSettings
from service.connectors.postgres.column_types import KeySending
from service.connectors.postgres.table import PostgresTable, Publications
from service.doctor.backends.database_check import connection_findings, server_findings
from service.doctor.backends.kafka_check import KafkaTopicFacts, retention_finding, topic_findings
from service.doctor.backends.postgres_server import ConnectionDemand, PostgresServer
from service.doctor.backends.table_check import (
    TableFacts,
    index_finding,
    key_finding,
    publication_finding,
    rights_finding,
    size_findings,
)
from service.doctor.clock_skew import ClockReading, clock_finding
from service.doctor.deployment.pod_template import pod_findings, read_pod_template
from service.doctor.deployment.spark_check import isolation_finding, spark_findings
from service.doctor.deployment.spark_check import version_finding as cluster_finding
from service.doctor.finding import Finding, Severity, error_finding
from service.doctor.sidecar.configuration_check import (
    configuration_findings,
    memory_finding,
    processors_finding,
)
from service.doctor.sidecar.response import SidecarResponse
from service.doctor.sidecar.secrets_check import expiry_finding, secret_findings
from service.doctor.sidecar.sharing_check import CacheReading, place_finding, sharing_finding
from service.doctor.sidecar.sidecar_check import (
    dimension_findings,
    list_finding,
    name_findings,
    readiness_finding,
    unreachable_finding,
    version_finding,
)
from service.doctor.sidecar.socket_check import SocketFacts, socket_findings
from service.resources.shared_place import SharedPlace
from tests.service.case_tables import cases
from tests.service.config.configuration import parsed
from tests.service.doctor.findings import SUBJECT, texts

TEMPLATE = Path(__file__).parents[3] / "k8s/base/executor-pod/executor-pod-template.yaml"
TABLES = sorted((Path(__file__).parent / "finding_tables").iterdir())
MIB = 2**20
NOW = ClockReading(0.0, 0.0, 0.0)
SERVER = PostgresServer(160004, "16.4", "reader", "shop", NOW, identity="5432", used=17)
TABLE = PostgresTable(
    TableOrigin("public", "t"), (("id", KeySending(pa.field("id", pa.int32()), "int4")),), ()
)
TOPIC = KafkaSettings(("h:1",), "t", heartbeat_topic="beats")
SOCKET = SocketFacts(Path("/run/s/s.sock"), mode=stat.S_IFSOCK | 0o660, owner=(185, 185))
POSTGRES = {"kind": "postgres", "dsn": "postgresql://me@h/d", "table": "t"}
OF_EXECUTORS = {"podSelector": {"matchLabels": {"spark-role": "executor"}}}

Facts = Any  # of a situation, as the table has them
Findings = Iterable[Finding] | Finding


def of_database(*, says: bool = False, listens: bool = False, **facts: Facts) -> Findings:
    """A server with these properties; `says` is source.pgbouncer of the configuration."""
    server = replace(SERVER, **facts)
    return server_findings(SUBJECT, server, is_pooler_configured=says, listens=listens)


def of_connections(
    executors: int | None, each: int = 8, servers: Iterable[dict[str, Facts]] = ({},)
) -> Findings:
    """Executors, and the number of connections of each to each of these servers."""
    found = [replace(SERVER, **facts) for facts in servers]
    demands = [ConnectionDemand(f"h{number}", server, each) for number, server in enumerate(found)]
    return connection_findings(demands, executors)


def of_tables(
    subject: str, *, required: bool = False, role: str = "me", **facts: Facts
) -> Findings:
    """Index, key, rights or size of a table; its cache has 64 MiB, which are halved."""
    is_superuser, mode = facts.pop("is_superuser", False), facts.pop("mode", "full")
    found = replace(TableFacts(uses_index=True), **facts)
    if subject == "index":
        return index_finding(SUBJECT, TABLE, found, is_required=required)
    if subject == "key":
        return key_finding(SUBJECT, TABLE, found)
    if subject == "rights":
        server = replace(SERVER, role=role, is_superuser=is_superuser)
        return rights_finding(SUBJECT, TABLE, found, server=server)
    cache = Cache.model_validate({"mode": mode, "max_bytes": "64MiB"})
    return size_findings(SUBJECT, found, cache, scale=0.5)


def of_certificates(**left: float) -> Findings:
    """A certificate that ends after this time."""
    end = datetime(2030, 1, 31, 12, 30, tzinfo=UTC)
    return expiry_finding(SUBJECT, end.timestamp(), now_s=(end - timedelta(**left)).timestamp())


def of_sockets(**facts: Facts) -> Findings:
    """A socket with these facts; `mode` is without the kind of file."""
    if isinstance(facts.get("mode"), int):
        facts["mode"] |= facts.pop("kind", stat.S_IFSOCK)
    if "connect_errno" in facts:
        facts["connect_errno"] = getattr(errno, facts["connect_errno"])
    return socket_findings(SUBJECT, replace(SOCKET, **facts))


def of_sharing(why: str | None = None, *, is_near: bool = True, **reading: Facts) -> Findings:
    """A cache with this reason not to be shared, and an attempt to read it."""
    if "errno" in reading:
        reading["errno"] = getattr(errno, reading["errno"])
    attempt = CacheReading(Path("/run/s/cache/1"), group=185, **reading) if is_near else None
    return sharing_finding(SUBJECT, {"why_private": why, "keys": 5678}, attempt)


def of_life(
    livez: int = 200, readyz: int = 200, code: str = "timeout", waiting: Iterable[str] = ()
) -> Findings:
    """A sidecar whose probes have these statuses, and its dimensions that are not ready."""
    ready = SidecarResponse(readyz, {"code": code, "detail": "is going"})
    return readiness_finding(SUBJECT, SidecarResponse(livez, "no"), ready, waiting=[*waiting])


def of_pods(
    *, checks_all: bool = True, is_ordinary: bool = False, executor: Facts = None, **sidecar: Facts
) -> Findings:
    """The shipped template with these fields of its containers, and of the pod in `spec`."""
    spec = read_pod_template(TEMPLATE)["spec"] | sidecar.pop("spec", {})
    (car,), (own,) = spec["initContainers"], spec["containers"]
    containers = [own | (executor or {}), *([car | sidecar] if is_ordinary else [])]
    spec |= {"initContainers": [] if is_ordinary else [car | sidecar], "containers": containers}
    return pod_findings(SUBJECT, {"spec": spec}, checks_all_containers=checks_all)


def of_properties(containers: list[str] | None = None, **settings: str) -> Findings:
    """Properties of spark-submit; names are those below `spark.kubernetes.executor.`."""
    named = {"podTemplateFile": "t.yaml"} | settings
    conf = {f"executor.{name}": text for name, text in named.items()}
    pod = {"spec": {"containers": [{"name": each} for each in containers or []]}}
    return spark_findings(SUBJECT, conf, None if containers is None else pod)


def of_isolation(version: list[int] | None, excluded: str = "", **spec: Facts) -> Findings:
    """Executors of this Spark version, and a policy that may open the port."""
    conf = {"driver.pod.excludedFeatureSteps": excluded}
    known = None if version is None else (version[0], version[1])
    return isolation_finding(SUBJECT, conf, known, policies=[{"spec": OF_EXECUTORS | spec}])


def of_configurations(limits: Facts = None, listen: Facts = None, **dimension: Facts) -> Findings:
    """A configuration with one dimension of PostgreSQL."""
    one = {"source": POSTGRES, "key": ["id"], **dimension}
    return configuration_findings(
        Settings({"dimensions": {"a": one}, "limits": limits or {}, "listen": listen or {}})
    )


# {name in the tables: function}; limits.memory is 512 MiB
FUNCTIONS: dict[str, Callable[..., Findings]] = {
    "database": of_database,
    "connections": of_connections,
    "tables": of_tables,
    "errors": lambda code, text="t", remedy="": error_finding(
        SUBJECT, BackendError(ErrorCode(code), text), remedy=remedy
    ),
    "topics": lambda **facts: topic_findings(SUBJECT, KafkaTopicFacts(3, **facts), TOPIC),
    "retention": lambda **settings: retention_finding(
        SUBJECT, {name.replace("_", "."): text for name, text in settings.items()}, lookback_s=60.0
    ),
    "clocks": lambda server_s, received_s=100.0, resolution_s=0.0: clock_finding(
        SUBJECT, ClockReading(100.0, received_s, server_s, resolution_s)
    ),
    "certificates": of_certificates,
    "secrets": lambda mode, is_mount=False: secret_findings(SUBJECT, mode, is_mount=is_mount),
    "sockets": of_sockets,
    "memory": lambda mebibytes, less=0: memory_finding(
        SUBJECT, 512 * MIB, None if mebibytes is None else mebibytes * MIB - less
    ),
    "processors": lambda limit: processors_finding(SUBJECT, limit),
    "life": of_life,
    "reasons": lambda reason: unreachable_finding(SUBJECT, reason),
    "versions": lambda theirs: version_finding(SUBJECT, theirs, "1.2"),
    "names": lambda configured: name_findings(SUBJECT, ["b", "a"], configured),
    "lists": lambda code, origin=None: list_finding(
        SUBJECT, SidecarResponse(500, {"code": code, "detail": "x"}), origin
    ),
    "dimensions": lambda status=200, **facts: dimension_findings(
        SUBJECT, SidecarResponse(status, facts)
    ),
    "properties": of_properties,
    "isolation": of_isolation,
    "clusters": lambda version: cluster_finding(SUBJECT, tuple(version)),
    "pods": of_pods,
    "publications": lambda complete=(), faults=(): publication_finding(
        SUBJECT, Publications(tuple(complete), tuple(faults))
    ),
    "sharing": of_sharing,
    "places": lambda mebibytes, needed: place_finding(
        SUBJECT, SharedPlace(Path("/run/s/cache"), Path("/run"), mebibytes * MIB), needed * MIB
    ),
    "configurations": of_configurations,
}


@pytest.mark.parametrize(
    ("situation", "expected"), [each for path in TABLES for each in cases(path)]
)
def test_situation_has_these_findings(situation: str, expected: list[str]) -> None:
    """A situation has exactly these faults with their remedies; without any, these findings."""
    ((name, facts),) = parsed(situation).items()

    found = FUNCTIONS[name](**facts)

    findings = [found] if isinstance(found, Finding) else list(found)
    faults = [each for each in findings if each.severity is not Severity.OK]
    assert texts(faults or findings) == expected
