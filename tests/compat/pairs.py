"""Supported pairs: each PySpark with the oldest and the newest Python and libraries that it takes.

Corners instead of the full product. Exact versions, so that a run can be repeated.
"""

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A Python (minor version) and the exact versions of what the client runs with."""

    pyspark: str
    python: str
    pyarrow: str
    numpy: str
    pandas: str

    @property
    def name(self) -> str:
        """Its folder, and its name on the command line."""
        return f"spark{self.pyspark}-python{self.python}-pyarrow{self.pyarrow}"

    @property
    def has_connect(self) -> bool:
        """Whether PySpark brings the server of Spark Connect."""
        return minor(self.pyspark) >= (4, 0)

    @property
    def versions(self) -> dict[str, str]:
        """{library: version}, Python included, in the order of the matrix."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def minor(version: str) -> tuple[int, int]:
    """Major and minor number of a version, comparable."""
    first, second, *_ = version.split(".")
    return int(first), int(second)


_OLDEST = {"pyarrow": "15.0.0", "numpy": "1.26.0", "pandas": "2.2.0"}
# PySpark 3.5 on the Python of the checkout; `make test` runs it.
AT_HAND = Pair(pyspark="3.5.0", python="3.11", **_OLDEST)
PAIRS = (
    Pair(pyspark="3.5.0", python="3.10", **_OLDEST),
    AT_HAND,
    # PySpark 3.5 takes Python up to 3.11; pip installs the newest libraries with it.
    Pair(pyspark="3.5.9", python="3.11", pyarrow="26.0.1", numpy="2.4.6", pandas="3.1.1"),
    Pair(pyspark="4.0.0", python="3.10", **_OLDEST),
    Pair(pyspark="4.0.5", python="3.13", pyarrow="26.0.1", numpy="2.5.5", pandas="2.3.3"),
    Pair(pyspark="4.1.0", python="3.10", **_OLDEST),
    Pair(pyspark="4.1.4", python="3.12", pyarrow="26.0.1", numpy="2.5.5", pandas="2.3.3"),
    Pair(pyspark="4.1.4", python="3.14", pyarrow="26.0.1", numpy="2.5.5", pandas="2.3.3"),
    # From 4.2 on PySpark requires pyarrow 18, and 4.3 requires Python 3.11.
    Pair(pyspark="4.2.0", python="3.10", pyarrow="18.0.0", numpy="1.26.0", pandas="2.2.0"),
    Pair(pyspark="4.2.1", python="3.13", pyarrow="26.0.1", numpy="2.5.5", pandas="3.1.1"),
    Pair(pyspark="4.2.1", python="3.14", pyarrow="26.0.1", numpy="2.5.5", pandas="3.1.1"),
    Pair(pyspark="4.3.0", python="3.11", pyarrow="18.0.0", numpy="1.26.0", pandas="2.2.0"),
    Pair(pyspark="4.3.0", python="3.13", pyarrow="26.0.1", numpy="2.5.5", pandas="3.1.1"),
    Pair(pyspark="4.3.0", python="3.14", pyarrow="26.0.1", numpy="2.5.5", pandas="3.1.1"),
)
