"""Which checks there are."""

from pathlib import Path

from service.config.settings import Settings
from service.doctor.deployment.pod_template import PodTemplateCheck
from service.doctor.plan import (
    Configured,
    Deployment,
    RunningSidecar,
    SkippedCheck,
    groups,
    plan,
    unknown_sidecar,
)
from service.doctor.sidecar.sidecar_check import SidecarAnswer
from tests.service.tls.certificates import authority

FILE = Path("c.yaml")
NOTHING = Deployment()
POSTGRES = {"kind": "postgres", "dsn": "postgresql://me@h/d", "table": "t"}
CHANGELOG = {"brokers": ["h:1"], "topic": "t", "format": "upsert_json"}
SETTINGS = Settings(
    {
        "dimensions": {
            "a": {"source": POSTGRES, "key": ["id"]},
            "b": {"source": POSTGRES, "key": ["id"], "refresh": {"changelog": CHANGELOG}},
            "c": {"source": {"kind": "parquet", "path": "/x"}, "key": ["id"]},
        }
    }
)


async def ask(_path: str) -> SidecarAnswer:
    """No sidecar of these tests is asked."""
    raise AssertionError


def names(
    configured: Configured | None,
    sidecar: RunningSidecar | SkippedCheck | None,
    deployment: Deployment = NOTHING,
) -> list[str]:
    """The checks, stage by stage."""
    stages = plan(configured, sidecar, deployment)
    return [" ".join(each.matter.check for each in stage) for stage in stages]


def test_nothing_given_is_little_to_look_at() -> None:
    """The sidecar at its usual place, and the cluster; that there could be more is told."""
    sidecar = RunningSidecar("unix:///s", ask, Path("/s"))

    assert names(None, sidecar) == ["configuration socket sidecar limits kubernetes", ""]


def test_tables_come_after_their_database() -> None:
    """Two dimensions of one address have one database, and a table each."""
    assert names(Configured(FILE, SETTINGS), None) == [
        "configuration secrets database kafka table kubernetes",
        "table table",
    ]


def test_databases_are_looked_at_apart() -> None:
    """Each with its tables: one that holds its process up holds up nothing else."""
    parts = groups(plan(Configured(FILE, SETTINGS), None, NOTHING))

    assert [[[each.matter.check for each in stage] for stage in part] for part in parts] == [
        [["configuration", "secrets", "kafka", "table", "kubernetes"], []],
        [["database"], ["table", "table"]],
    ]


def test_faulty_configuration_leaves_the_rest() -> None:
    """Without settings there are no stores; what else can be looked at is."""
    sidecar = RunningSidecar("http://h", ask)

    found = names(
        Configured(FILE, faults=["x"]), sidecar, Deployment(pod_template=FILE, spark_conf=FILE)
    )

    assert found == ["configuration sidecar limits kubernetes pod template spark", ""]


def test_unknown_sidecar_is_not_asked() -> None:
    """Where it listens is nowhere said: no socket is looked at, and that is a finding."""
    found = names(Configured(FILE, faults=["x"]), unknown_sidecar("c.yaml"))

    assert found == ["configuration sidecar limits kubernetes", ""]


def test_certificate_is_looked_at(tmp_path: Path) -> None:
    """That of listen.tls, where there is one."""
    files = authority(tmp_path).issue()
    tls = {"cert_file": str(files.cert_file), "key_file": str(files.key_file)}
    listen = {"http": "127.0.0.1:1", "tls": tls}
    dimension = {"source": {"kind": "parquet", "path": "/x"}, "key": ["id"]}
    settings = Settings({"listen": listen, "dimensions": {"a": dimension}})

    assert names(Configured(FILE, settings), None) == [
        "configuration secrets tls table kubernetes",
        "",
    ]


def test_template_is_held_against_spark(tmp_path: Path) -> None:
    """What Spark says of all containers counts for the template."""
    conf = tmp_path / "spark.conf"
    conf.write_text("spark.kubernetes.executor.checkAllContainers false\n")

    stages = plan(None, None, Deployment(pod_template=FILE, spark_conf=conf))
    unknown = plan(None, None, Deployment(pod_template=FILE, spark_conf=tmp_path / "none"))

    assert PodTemplateCheck(FILE, checks_all=False) in stages[0]
    assert PodTemplateCheck(FILE, checks_all=True) in unknown[0]


def test_vanished_secret_leaves_the_rest(tmp_path: Path) -> None:
    """An address that cannot be read any more is told by the check of secrets, not by a crash."""
    file = tmp_path / "dsn"
    file.write_text("postgresql://me@h/d")
    file.chmod(0o400)
    source = {"kind": "postgres", "dsn_file": str(file), "table": "t"}
    settings = Settings({"dimensions": {"a": {"source": source, "key": ["id"]}}})
    file.unlink()

    assert names(Configured(FILE, settings), None) == ["configuration secrets kubernetes", ""]
