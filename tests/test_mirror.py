"""The tests mirror the tree: whoever knows a module knows where its tests are.

Says nothing about how good the tests are; coverage does.
"""

from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("lookup_core", "service", "spark_client", "demo")
EXEMPT = {  # {path or file name: why it has no test of its own}
    "__init__.py": "re-exports and docstrings only",
    "interface.py": "a port has no behaviour; its contract suite tests every implementation",
    "demo/__main__.py": "tests/end_to_end/test_demo.py runs it as a user does",
    "demo/demonstration.py": "as above",
    "demo/live/changelog.py": "as above",
    "demo/live/flight_stream.py": "as above",
    "demo/live/live_run.py": "as above",
    "demo/progress.py": "as above",
    "demo/sidecar.py": "as above",
    "demo/spark_session.py": "as above",
    "demo/stream.py": "as above",
}


def test_each_module_has_its_tests() -> None:
    """Every module has a test file at the same path, or a reason not to."""
    modules = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    tested = [path.relative_to(ROOT) for path in modules if not _is_exempt(path)]
    missing = [str(path) for path in tested if not (ROOT / "tests" / _test_of(path)).is_file()]

    assert not missing, "\n".join(missing)


def test_exceptions_name_real_modules() -> None:
    """An exception that no module needs any more is removed."""
    paths = [entry for entry in EXEMPT if "/" in entry]

    assert [path for path in paths if not (ROOT / path).is_file()] == []


def _test_of(module: Path) -> Path:
    return module.parent / f"test_{module.stem.strip('_')}.py"


def _is_exempt(path: Path) -> bool:
    return path.name in EXEMPT or str(path.relative_to(ROOT)) in EXEMPT
