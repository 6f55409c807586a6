"""A Java program as a process that can be stopped, killed and frozen.

What it is told on its command line, and when it is ready, is the business of its users.
"""

import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

# Small and quick to start: neither a large heap nor the best code pays for itself here.
_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_LOG_RULES = """<Configuration><Appenders><Console name="console">
<PatternLayout pattern="%d %p %c{1} %m%n"/></Console></Appenders>
<Loggers><Root level="warn"><AppenderRef ref="console"/></Root></Loggers></Configuration>
"""


class JavaProcess:
    """One program of the libraries; what it says goes to a log in `folder`."""

    def __init__(self, folder: Path, *, libraries: Path, name: str) -> None:
        self.log = folder / f"{name}.log"
        self._folder = folder
        self._libraries = libraries
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self, *arguments: str) -> None:
        """Start the main class with its arguments."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(arguments),
                cwd=self._folder,
                stdout=log,
                stderr=log,
                # A session of its own: Ctrl-C is for who has started it, and stops it in order.
                start_new_session=True,
            )

    def run(self, *arguments: str) -> None:
        """Run the main class to its end; raises CalledProcessError."""
        with self.log.open("ab") as log:
            subprocess.run(
                self._command(arguments), cwd=self._folder, stdout=log, stderr=log, check=True
            )

    def freeze(self) -> None:
        """Let it do nothing from now on; its sockets stay open."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it at once."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self, *, timeout_s: float = 10.0) -> None:
        """Ask it to end, and end it if it does not in time; nothing if it has ended already."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def _command(self, arguments: Sequence[str]) -> list[str]:
        rules = self._folder / "log4j2.xml"
        rules.write_text(_LOG_RULES)
        # It writes a log beside its working directory otherwise.
        logs = (f"-Dlog4j2.configurationFile={rules}", f"-Dkafka.logs.dir={self._folder}")
        return ["java", *_OPTIONS, *logs, "-cp", f"{self._libraries}/*", *arguments]
