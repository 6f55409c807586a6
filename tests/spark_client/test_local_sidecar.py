"""Rules of the local sidecar that need no process: masters, interpreters."""

import pytest

from spark_client.driver.local_sidecar import interpreter, is_on_one_machine

HERE = ["local", "local[2]", "local[*]", "local[*, 3]", "local-cluster[2,1,1024]"]
LOOPBACK = ["spark://localhost:7077", "spark://127.0.0.1:7077", "spark://[::1]:7077"]
ELSEWHERE = ["yarn", "k8s://https://10.0.0.1", "spark://host:7077", "spark://127.example:7077"]


@pytest.mark.parametrize(
    ("master", "is_here"),
    [*((each, True) for each in HERE + LOOPBACK), *((each, False) for each in ELSEWHERE)],
)
def test_local_masters_share_a_machine(master: str, is_here: bool) -> None:  # noqa: FBT001 -- a case
    """Local mode, and a standalone master on loopback, have their executors on this machine."""
    assert is_on_one_machine(master) is is_here


def test_old_python_needs_another_one() -> None:
    """A driver on Python 3.10 names the interpreter of the service."""
    with pytest.raises(ValueError, match=r"this is 3\.10; .*python='/path"):
        interpreter(None, (3, 10, 14))

    assert interpreter("/opt/sidelook/bin/python", (3, 10, 14)) == "/opt/sidelook/bin/python"
