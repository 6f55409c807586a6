"""A sidecar as its own process, with dimensions that follow topics of Kafka.

Starts it and asks it; what is in the tables and in the topics is the business of `told_table`.
"""

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tools.processes.sidecar_process import SERVE, SidecarProcess
from tools.processes.until import until

PATIENCE_S = 60.0
LONG = {"ttl": "1h", "negative_ttl": "1h"}  # only the feed keeps it fresh

Answer = tuple[str, str | None]  # the outcome, and the name in the row
Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ChangelogSidecar:
    """What a running sidecar says."""

    process: SidecarProcess

    @property
    def log(self) -> str:
        """All that it has logged."""
        return (self.process.folder / "log").read_text()

    def look_up(self, dimension: str, keys: Sequence[int], **request: object) -> list[Answer]:
        """How each key is answered."""
        path = f"/v1/dimensions/{dimension}/lookup"
        reply = self.process.post(path, {"keys": list(keys), **request})
        assert reply.status == 200, reply.text
        answer = reply.json()
        names = [None if row is None else row["name"] for row in answer["rows"]]
        return list(zip(answer["outcomes"], names, strict=True))

    def freshness(self, dimension: str) -> Any:  # noqa: ANN401  # any JSON
        """How the dimension is followed and loaded."""
        return self.process.get(f"/v1/dimensions/{dimension}").json()["freshness"]

    def feed_state(self, dimension: str) -> str:
        """Whether its feed is believed."""
        return str(self.freshness(dimension)["feed"]["state"])

    def positions(self, dimension: str) -> dict[str, int | None]:
        """How far each partition is read."""
        splits = self.freshness(dimension)["feed"]["splits"]
        return {split["id"]: split["position"] for split in splits}

    def figure(self, name: str, **labels: str) -> float:
        """The sum of the samples that have these labels."""
        text = self.process.health("/metrics").text
        return sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def queries(self, dimension: str) -> float:
        """How many queries the dimension's table was asked with."""
        return self.figure("sidelook_backend_queries_total", dimension=dimension)

    def wait_until_live(self, dimension: str) -> None:
        """Wait until the feed is believed."""
        until(lambda: self.feed_state(dimension) == "live", within_s=PATIENCE_S)

    def wait_until_passed_by(self, dimension: str) -> float:
        """Wait until the feed is not believed; the seconds that it took."""
        return until(lambda: self.feed_state(dimension) != "live", within_s=PATIENCE_S)


@contextmanager
def changelog_sidecar(
    dimensions: Mapping[str, Json], *, ready: str = "/readyz"
) -> Iterator[ChangelogSidecar]:
    """A sidecar with these dimensions, until the end."""
    folder = Path(tempfile.mkdtemp(prefix="sidelook-"))  # short: sockets have short paths
    config = folder / "config.json"
    config.write_text(json.dumps({"dimensions": dimensions}))
    process = SidecarProcess(folder, (*SERVE, "--config", str(config)))
    with process.running(until=ready):
        yield ChangelogSidecar(process)
    shutil.rmtree(folder)
