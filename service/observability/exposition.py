"""The text that Prometheus scrapes, from one application's own collectors.

Not the process-wide default registry: two services in one process must not mix.
"""

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.registry import Collector


class Exposition:
    """Renders what its collectors report."""

    def __init__(self, collectors: Sequence[Collector]) -> None:
        self._registry = CollectorRegistry()
        for collector in collectors:
            self._registry.register(collector)

    def render(self) -> bytes:
        """All families in the Prometheus text format 0.0.4."""
        return generate_latest(self._registry)
