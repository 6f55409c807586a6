"""What spark-submit is told in a properties file.

Reads the form only; what the settings mean is decided in `spark_check`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lookup_core.errors import ConfigurationError

_LINE = re.compile(r"\s*([^\s=:#!][^\s=:]*)\s*[\s=:]\s*(.*?)\s*")
_IMAGES = ("spark.kubernetes.executor.container.image", "spark.kubernetes.container.image")
_TAG = re.compile(r".*:v?(\d+)\.(\d+)[^/]*")


@dataclass(frozen=True, slots=True)
class SparkConf:
    """The settings, as texts."""

    settings: Mapping[str, str]

    def get(self, name: str, default: str = "") -> str:
        """A setting of Spark on Kubernetes, by the name after `spark.kubernetes.`."""
        return self.settings.get(f"spark.kubernetes.{name}", default)

    @property
    def checks_all_containers(self) -> bool:
        """Whether an executor fails with any of its containers; so it is from Spark 4.0 on."""
        return self.get("executor.checkAllContainers", "true").lower() != "false"

    @property
    def image_version(self) -> tuple[int, int] | None:
        """The version of Spark that the tag of its image tells, if it does."""
        image = next((self.settings[name] for name in _IMAGES if name in self.settings), "")
        match = _TAG.fullmatch(image)
        return (int(match[1]), int(match[2])) if match else None


def read_spark_conf(path: Path) -> SparkConf:
    """The settings in a file; raises ConfigurationError that says why it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigurationError([f"cannot be read: {error.strerror}"]) from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(["is not UTF-8 text"]) from error
    matches = [_LINE.fullmatch(line) for line in text.splitlines()]
    return SparkConf({match[1]: match[2] for match in matches if match})
