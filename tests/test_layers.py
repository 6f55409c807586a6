"""The imports of the source text follow the layers of the architecture."""

import ast
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("lookup_core", "service", "sidelook", "spark_client", "demo", "bench", "tools")
IMPURE = {"asyncio", "socket", "ssl", "threading", "time", "random", "os", "logging"} | {
    *("concurrent", "multiprocessing", "select", "selectors", "signal", "subprocess"),
}
PURE = (sys.stdlib_module_names - IMPURE) | {"lookup_core", "numpy", "pyarrow"}
PORTS = "service.connectors.ports"
ROWS = "service.connectors.several_rows"
SHARED_MEMORY = "service.resources.shared_memory"
FILE_IDENTITY = "service.file_identity"
POSTGRES_DSN = "service.postgres_dsn"
SENT_TO_TASKS = ("spark_client.lookup_settings", "spark_client.spark_types")
# {importer: its imports besides itself and lookup_core}; the longest name counts
ALLOWED = {
    "lookup_core": (),
    "spark_client": (),
    "spark_client.driver": (*SENT_TO_TASKS, "spark_client.transport", "spark_client.worker"),
    "spark_client.worker": (*SENT_TO_TASKS, "spark_client.transport"),
    "spark_client.lookup_settings": ("spark_client.transport",),
    "spark_client.spark_types": (),
    "spark_client.transport": (),
    "sidelook": ("spark_client",),
    PORTS: (),
    ROWS: (PORTS,),
    **{
        f"service.connectors.{kind}": (PORTS, ROWS, FILE_IDENTITY, POSTGRES_DSN)
        for kind in ("kafka", "parquet", "postgres")
    },
    "service.observability": ("service.engine.observer", "service.engine.tracer"),
    FILE_IDENTITY: (),
    "service.tls": (FILE_IDENTITY,),
    "service.config": (FILE_IDENTITY, POSTGRES_DSN),
    POSTGRES_DSN: (),
    "service.config.listen": ("service.config", "service.tls"),  # certificates are checked
    "service.bound_sockets": ("service.config",),
    "service.engine": (PORTS, SHARED_MEMORY),
    "service.stream": ("service.engine",),
    "service.http": ("service.engine", FILE_IDENTITY),
    "service.resources": (),
    "service.wiring.connector_settings": (
        "service.config",
        "service.connectors",
        POSTGRES_DSN,
        "service.version",
    ),
    "service.wiring.cache_demand": ("service.config", "service.resources"),
    # The doctor queries backends through the sidecar's own connectors.
    "service.doctor": (
        *("service.config", "service.connectors", "service.resources", FILE_IDENTITY),
        *("service.wiring.connector_settings", "service.wiring.cache_demand", "service.version"),
    ),
    "service.app": ("service",),
    "service.wiring": ("service",),
    "service.listeners": ("service",),
    "service.commands": (
        *("service.config", "service.app", "service.doctor"),
        "service.bound_sockets",  # before the rest is imported
        "service.connectors.parquet.file",  # check-config reads the schema
        # gen-triggers describes the table, and prints the SQL
        *("service.connectors.postgres.backend", "service.connectors.postgres.triggers"),
        "service.wiring.connector_settings",
        "service.observability.logs",  # serve logs before the sidecar runs
        "service.version",
    ),
    "service.__main__": ("service.commands",),
    "demo": ("spark_client",),
    "bench": ("service", "spark_client", "demo"),
    "tools": ("service", "sidelook", "spark_client", "demo", "bench"),
}


def test_imports_follow_the_layers() -> None:
    """Each module imports only from its own part, lookup_core and the layers below."""
    wrong = [f"{module} -> {target}" for module, target in _edges() if not _may(module, target)]

    assert wrong == []


def test_core_imports_pure_libraries_only() -> None:
    """The core uses no clock, socket, thread, random number or log."""
    core = {name: path for name, path in _modules().items() if name.startswith("lookup_core")}
    found = {(name, target) for name, path in core.items() for target in _imports(path)}

    assert {(name, target) for name, target in found if target.split(".")[0] not in PURE} == set()


def test_modules_import_without_cycles() -> None:
    """No module reaches itself through its imports; raises CycleError naming the cycle."""
    graph: dict[str, set[str]] = {}
    for module, target in _edges():
        graph.setdefault(module, set()).add(target)

    assert set(TopologicalSorter(graph).static_order()) <= set(_modules())


def _may(module: str, target: str) -> bool:
    layer = max((name for name in ALLOWED if _is_within(module, name)), key=len, default=module)
    allowed = (layer, "lookup_core", *ALLOWED.get(layer, ()))
    return any(_is_within(target, name) for name in allowed)


def _is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def _modules() -> dict[str, Path]:
    paths = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    parts = {path: path.relative_to(ROOT).with_suffix("").parts for path in paths}
    return {".".join(names).removesuffix(".__init__"): path for path, names in parts.items()}


def _edges() -> Iterator[tuple[str, str]]:
    modules = _modules()
    for module, path in modules.items():
        for name in _imports(path):
            target = name if name in modules else name.rpartition(".")[0]
            if target in modules or name.startswith("tests."):  # no package may import tests
                yield module, target


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Import():
                yield from (alias.name for alias in node.names)
            case ast.ImportFrom(module=str(module), level=0):
                # The name may be a module or a part of one.
                yield from (f"{module}.{alias.name}" for alias in node.names)
            case ast.ImportFrom():
                message = f"{path}: relative import"
                raise AssertionError(message)
