"""What is left is told by kind."""

import os
import subprocess
from pathlib import Path

from tests.end_to_end.until import until
from tests.rehearsal.left_over import left_over


def test_process_beside_this_one_is_left_over(tmp_path: Path) -> None:
    """With its command, until it has ended; this one is not."""
    with subprocess.Popen(["/bin/sleep", "60"]) as process:
        line = f"process {process.pid} /bin/sleep 60 "
        until(lambda: line in left_over(tmp_path), within_s=10)  # its command is told a little late
        found = left_over(tmp_path)
        process.kill()

    assert line in found
    assert line not in left_over(tmp_path)
    assert not any(each.startswith(f"process {os.getpid()} ") for each in found)


def test_untouched_folder_has_no_mounts_or_groups(tmp_path: Path) -> None:
    """Only what lies below it, or has its name, counts."""
    assert [each for each in left_over(tmp_path) if not each.startswith("process ")] == []
