"""A Prometheus that scrapes sidecars each second, and a client of its HTTP API."""

import http.client
import json
import subprocess
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.processes.sidecar_process import free_port
from tools.processes.until import until

INTERVAL = "1s"
_RULE_FILE = "rules.yml"
REQUEST_TIMEOUT_S = 10.0
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class PrometheusProcess:
    """A server with its folder, targets and rules."""

    program: Path
    folder: Path
    targets: Mapping[int, Mapping[str, str]]  # {port: labels of service discovery}
    rules: str = ""
    port: int = field(default_factory=free_port)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the server; it is ready in the block."""
        (self.folder / _RULE_FILE).write_text(self.rules)
        configuration = self.folder / "prometheus.yml"
        configuration.write_text(json.dumps(self._configuration()))  # JSON is YAML
        log = self.folder / "prometheus.log"
        with log.open("w") as standard_error:
            process = subprocess.Popen(self._command(configuration), stderr=standard_error)
        try:
            until(self._is_ready, within_s=START_TIMEOUT_S)
            yield
            assert process.poll() is None, log.read_text()
        finally:
            process.terminate()
            process.wait(STOP_TIMEOUT_S)

    def values(self, expression: str) -> list[float]:
        """The current values of the series; raises AssertionError for an invalid expression."""
        result = self._result("query", {"query": expression})
        return [float(sample["value"][1]) for sample in result]

    def firing(self) -> set[tuple[str, str]]:
        """Names and severities of the firing alerts."""
        alerts = self._get("/api/v1/alerts")["data"]["alerts"]
        labels = [each["labels"] for each in alerts if each["state"] == "firing"]
        return {(each["alertname"], each["severity"]) for each in labels}

    def rule_health(self) -> dict[str, str]:
        """{rule: health or error of its last evaluation}."""
        groups = self._get("/api/v1/rules")["data"]["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        return {rule["name"]: rule.get("lastError", rule["health"]) for rule in rules}

    def _result(self, path: str, query: Mapping[str, str]) -> list[dict[str, Any]]:
        answer = self._get(f"/api/v1/{path}?{urllib.parse.urlencode(query)}")
        assert answer["status"] == "success", f"{query['query']}: {answer['error']}"
        assert not answer.get("warnings"), f"{query['query']}: {answer['warnings']}"
        result: list[dict[str, Any]] = answer["data"]["result"]
        return result

    def _configuration(self) -> dict[str, Any]:
        static = [
            {"targets": [f"127.0.0.1:{port}"], "labels": dict(labels)}
            for port, labels in self.targets.items()
        ]
        return {
            "global": {"scrape_interval": INTERVAL, "evaluation_interval": INTERVAL},
            "rule_files": [_RULE_FILE],
            "scrape_configs": [{"job_name": "sidelook", "static_configs": static}],
        }

    def _command(self, configuration: Path) -> list[str]:
        return [
            str(self.program),
            f"--config.file={configuration}",
            f"--storage.tsdb.path={self.folder / 'series'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--log.level=warn",
        ]

    def _is_ready(self) -> bool:
        try:
            return self._request("/-/ready")[0] == http.client.OK
        except OSError:
            return False  # not listening yet

    def _get(self, path: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self._request(path)[1])
        return answer

    def _request(self, path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=REQUEST_TIMEOUT_S)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()
