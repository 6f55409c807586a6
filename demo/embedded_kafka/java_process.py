"""Java program in a process that can be stopped, killed and frozen."""

import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

# Prefer a small heap and a quick start over peak speed.
_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_LOG_RULES = """<Configuration><Appenders><Console name="console">
<PatternLayout pattern="%d %p %c{1} %m%n"/></Console></Appenders>
<Loggers><Root level="warn"><AppenderRef ref="console"/></Root></Loggers></Configuration>
"""


class JavaProcess:
    """A program of the libraries; its output is appended to `log`, a file in `folder`."""

    def __init__(self, folder: Path, *, libraries: Path, name: str) -> None:
        self.log = folder / f"{name}.log"
        self._folder = folder
        self._libraries = libraries
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        """Whether the process has started and not ended."""
        return self._process is not None and self._process.poll() is None

    def launch(self, *arguments: str) -> None:
        """Start the main class with its arguments."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(arguments),
                cwd=self._folder,
                stdout=log,
                stderr=log,
                # In a session of its own the process gets no Ctrl-C; its owner stops it in order.
                start_new_session=True,
            )

    def run(self, *arguments: str) -> None:
        """Run the main class to its end; raises CalledProcessError."""
        with self.log.open("ab") as log:
            subprocess.run(
                self._command(arguments), cwd=self._folder, stdout=log, stderr=log, check=True
            )

    def freeze(self) -> None:
        """Suspend the process; its sockets stay open."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Resume the process."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """End the process immediately."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self, *, timeout_s: float = 10.0) -> None:
        """Terminate the process, or kill it after the timeout; a no-op if it has ended."""
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
        # By default, Kafka also writes log files next to its working directory.
        logs = (f"-Dlog4j2.configurationFile={rules}", f"-Dkafka.logs.dir={self._folder}")
        return ["java", *_OPTIONS, *logs, "-cp", f"{self._libraries}/*", *arguments]
