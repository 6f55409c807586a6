"""A virtual environment with another version of PySpark than that of the tests.

Made once in the user's cache and used again; the tests' own environment stays as it is.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from demo.maven_libraries import download_cache

INSTALL_TIMEOUT_S = 1200.0
_SAME_AS_HERE = ("numpy", "pandas", "pyarrow", "websockets")


class EnvironmentUnavailable(Exception):
    """The environment cannot be made here; the text says why."""


def python_with_spark(spark_version: str, *, environ: Mapping[str, str] = os.environ) -> Path:
    """The Python of the environment; making it takes about two minutes and 900 MB.

    Raises EnvironmentUnavailable where there is no package index.
    """
    wanted = [f"pyspark=={spark_version}", *(f"{name}=={version(name)}" for name in _SAME_AS_HERE)]
    with download_cache(environ) as cache:
        folder = cache / f"pyspark-{spark_version}"
        python, stamp = folder / "bin" / "python", folder / "installed"
        if not stamp.exists() or stamp.read_text().split() != wanted:
            shutil.rmtree(folder, ignore_errors=True)
            _run([sys.executable, "-m", "venv", str(folder)], environ)
            # Without pip's own cache, which would hold another copy of Spark.
            options = ["--disable-pip-version-check", "--no-cache-dir", "--quiet"]
            _run([str(python), "-m", "pip", "install", *options, *wanted], environ)
            stamp.write_text("\n".join(wanted))
    return python


def _run(command: list[str], environ: Mapping[str, str]) -> None:
    try:
        subprocess.run(
            command,
            env=dict(environ),
            check=True,
            capture_output=True,
            text=True,
            timeout=INSTALL_TIMEOUT_S,
        )
    except subprocess.CalledProcessError as error:
        raise EnvironmentUnavailable(f"{' '.join(command)}: {error.stderr.strip()}") from error
    except subprocess.TimeoutExpired as error:
        raise EnvironmentUnavailable(f"{' '.join(command)}: {error.timeout} s") from error
