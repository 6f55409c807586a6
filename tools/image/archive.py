"""Archives of images, as `docker load` and `ctr images import` read them."""

import hashlib
import io
import json
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tools.image.container import ARCHITECTURE

# Equal files have equal archives: sorted by name, without times and names of users.
_REPRODUCIBLE = ("--sort=name", "--mtime=@0", "--numeric-owner", "--format=gnu")


def write_archive(root: Path, archive: Path, *, name: str, config: Mapping[str, object]) -> str:
    """Write an image of one layer, of this machine's architecture, and return its digest.

    `config` has User, Env, Entrypoint, Cmd and WorkingDir as in an image.
    """
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        layer = Path(folder) / "layer.tar"
        command = ["/bin/tar", "--create", *_REPRODUCIBLE, "--file", str(layer)]
        subprocess.run([*command, "--directory", str(root), "."], check=True)
        with layer.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        settings = {
            "architecture": ARCHITECTURE,
            "os": "linux",
            "config": config,
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        }
        content = json.dumps(settings, sort_keys=True).encode()
        image = hashlib.sha256(content).hexdigest()
        files = {"Config": f"{image}.json", "RepoTags": [name], "Layers": ["layer.tar"]}
        unfinished = archive.with_suffix(".unfinished")
        with tarfile.open(unfinished, "w") as tar:
            _add(tar, f"{image}.json", content)
            _add(tar, "manifest.json", json.dumps([files]).encode())
            tar.add(layer, "layer.tar", filter=_anonymous)
        unfinished.rename(archive)
    return f"sha256:{image}"


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = 0, 0, 0, "", ""
    return entry
