"""What of an earlier run is gone, and what stays."""

from pathlib import Path

from demo.workspace import Workspace


def test_prepare_removes_an_earlier_stream(tmp_path: Path) -> None:
    """A second run starts with fresh input, checkpoint and output, and keeps the database."""
    workspace = Workspace(tmp_path / "demo")
    for folder in (workspace.flights, workspace.checkpoint, workspace.enriched, workspace.postgres):
        folder.mkdir(parents=True)
        (folder / "file").touch()

    workspace.prepare()

    left = sorted(path.relative_to(workspace.root) for path in workspace.root.rglob("*"))
    assert left == [Path("flights"), Path("postgres"), Path("postgres/file")]
