"""A real Prometheus on a machine of its own, which scrapes the pod's address.

Which rules and alerts there are is not its business here.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

from tests.debian_tool import debian_tool
from tests.image.container_runtime import ContainerRuntime, RunningContainer
from tests.rehearsal import network
from tests.rehearsal.host_root import NOBODY, HostRoot

PORT = 9090
TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Monitoring:
    """The server, and questions to it."""

    runtime: ContainerRuntime
    root: HostRoot
    folder: Path  # for its files

    def start(self, target: str) -> RunningContainer:
        """It scrapes `target` (address and port) every second."""
        self.root.make()
        self.folder.mkdir()
        os.chown(self.folder, NOBODY, NOBODY)
        job = {"job_name": "sidelook", "static_configs": [{"targets": [target]}]}
        scraping = {"scrape_interval": "1s", "scrape_timeout": "1s"}
        configuration = self.folder / "prometheus.yml"  # JSON is YAML, too
        configuration.write_text(json.dumps({"global": scraping, "scrape_configs": [job]}))
        program = debian_tool("prometheus", "prometheus")
        command = [
            str(program),
            f"--config.file={configuration}",
            f"--storage.tsdb.path={self.folder}",
            f"--web.listen-address={network.MONITORING}:{PORT}",
        ]
        container = self.root.container(command, folders=[program.parent], writable=[self.folder])
        return self.runtime.start("prometheus", network.joined(container, "monitoring"))

    def value(self, query: str) -> float:
        """What the query's only sample says; 0 where there is none, or nobody answers yet."""
        url = f"http://{network.MONITORING}:{PORT}/api/v1/query?{urlencode({'query': query})}"
        try:
            with urlopen(url, timeout=TIMEOUT_S) as answer:
                samples = json.load(answer)["data"]["result"]
        except OSError:
            return 0.0
        return float(samples[0]["value"][1]) if samples else 0.0
