"""What a running sidecar counts, read from its `/metrics` as Prometheus would.

Sums over all dimensions; says nothing about single channels: `/v1/channels` does.
"""

from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from tests.end_to_end.sidecar_process import SidecarProcess
from tests.end_to_end.until import until

LOOKUPS = "sidelook_lookups_total"
CHANNELS = "sidelook_channels"
LEVELS = (  # all are 0 when nobody asks
    CHANNELS,
    "sidelook_credit_records",
    "sidelook_in_flight_records",
    "sidelook_backlog_records",
)


@dataclass(frozen=True, slots=True)
class SidecarFigures:
    """Reads the figures of one sidecar; each reading is a scrape."""

    sidecar: SidecarProcess

    def read(self) -> dict[str, float]:
        """All samples of the service by name, summed over their labels."""
        figures: dict[str, float] = {}
        for family in text_string_to_metric_families(self.sidecar.health("/metrics").text):
            for sample in family.samples:
                figures[sample.name] = figures.get(sample.name, 0.0) + sample.value
        return figures

    def lookups(self) -> float:
        """Keys that were answered since the process began."""
        return self.read()[LOOKUPS]

    def channels(self) -> float:
        """Channels that are open."""
        return self.read()[CHANNELS]

    def levels(self) -> dict[str, float]:
        """What must be 0 at rest."""
        figures = self.read()
        return {name: figures[name] for name in LEVELS}

    def seconds_until_at_rest(self, *, within_s: float = 20.0) -> float:
        """How long it took until no channel, no credit and no record was held."""
        return until(lambda: not any(self.levels().values()), within_s=within_s)
