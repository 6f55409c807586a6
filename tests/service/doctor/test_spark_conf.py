"""Reading spark-submit's properties."""

from pathlib import Path

import pytest

from lookup_core.errors import ConfigurationError
from service.doctor.deployment.spark_check import SparkConf, read_spark_conf


def test_forms_of_lines_are_read(tmp_path: Path) -> None:
    """A blank, an equals sign or a colon between name and value; comments are none."""
    file = tmp_path / "spark.conf"
    file.write_text("# no\n! no\n\na  b c \nd=e=f\n g : h\n\tspark.x\t1\n")

    assert read_spark_conf(file).settings == {"a": "b c", "d": "e=f", "g": "h", "spark.x": "1"}


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("apache/spark:4.2.0", (4, 2)),
        ("registry:5000/spark:v4.10-python", (4, 10)),
        ("registry:5000/spark", None),
        ("spark:latest", None),
    ],
)
def test_tag_tells_the_version(image: str, version: tuple[int, int] | None) -> None:
    """As far as a tag is a version."""
    assert SparkConf({"spark.kubernetes.container.image": image}).image_version == version


def test_unreadable_file_has_a_reason(tmp_path: Path) -> None:
    """A file that is missing, or is no text."""
    (tmp_path / "b").write_bytes(b"\xff")

    with pytest.raises(ConfigurationError, match="No such file"):
        read_spark_conf(tmp_path / "none")
    with pytest.raises(ConfigurationError, match="UTF-8"):
        read_spark_conf(tmp_path / "b")


def test_all_containers_are_looked_at() -> None:
    """So it is from Spark 4.0 on, unless it is switched off."""
    name = "spark.kubernetes.executor.checkAllContainers"

    assert SparkConf({}).checks_all_containers
    assert not SparkConf({name: "False"}).checks_all_containers
