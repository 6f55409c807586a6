"""Command-line interface of the demonstration."""

import argparse
import sys
from pathlib import Path
from typing import get_args

from pyspark.errors import StreamingQueryException
from rich.console import Console

from demo.demonstration import Demonstration
from demo.embedded_kafka.kafka_broker import KafkaUnavailable
from demo.flights import Workspace
from demo.interrupt import Interrupt
from demo.sidecar import SidecarFailed
from demo.stream import Mode

FILE_COLUMNS = 110
LIVE_SECONDS = 60
FOLDER = Path(__file__).parent.parent / "out" / "demo"


def main() -> int:
    """Run the demonstration; return 0 if all results are right, else 1, or 130 after Ctrl-C."""
    arguments = _arguments()
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = FILE_COLUMNS
    interrupt = Interrupt()
    demonstration = Demonstration(
        workspace=Workspace(arguments.folder.resolve()),
        console=console,
        interrupt=interrupt,
        mode=arguments.mode,
        limit=arguments.flights,
        live_seconds=arguments.live,
        stays_up=arguments.serve,
    )
    try:
        interrupt.install()
        faults = demonstration.run()
    except (SidecarFailed, KafkaUnavailable, StreamingQueryException) as error:
        console.print(f"FAILED: {str(error)[:2000]}", f"logs: {arguments.folder}/*.log", sep="\n")
        return 1
    except KeyboardInterrupt:
        console.print("stopped")
        return 130
    return 1 if faults else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m demo", description="Enrich a year of flights with four lookup joins."
    )
    parser.add_argument("--serve", action="store_true", help="stay up afterwards, until Ctrl-C")
    parser.add_argument("--mode", choices=get_args(Mode), default="unordered")
    parser.add_argument(
        "--live",
        type=int,
        nargs="?",
        const=LIVE_SECONDS,
        metavar="SECONDS",
        help=f"then change tables for this time (default: {LIVE_SECONDS}) while flights stream",
    )
    parser.add_argument("--flights", type=int, metavar="N", help="only the first N flights")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="default: out/demo")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
