"""What of an earlier run is gone, and what stays."""

from pathlib import Path

from demo.flights import Workspace


def test_prepare_removes_an_earlier_stream(tmp_path: Path) -> None:
    """A second run starts with fresh streams and a fresh changelog, and keeps the database."""
    workspace = Workspace(tmp_path / "demo")
    streams = (workspace.flights, workspace.checkpoint, workspace.enriched)
    live = (workspace.changelog, workspace.live_checkpoint)
    for folder in (*streams, *live, workspace.postgres):
        folder.mkdir(parents=True)
        (folder / "file").touch()

    workspace.prepare()

    left = sorted(path.relative_to(workspace.root) for path in workspace.root.rglob("*"))
    assert left == [Path("flights"), Path("postgres"), Path("postgres/file")]
