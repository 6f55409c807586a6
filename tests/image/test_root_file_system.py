"""The root file system of the image: links, what is left out, and libraries without symbols."""

import ctypes
import sys
from pathlib import Path

import pytest
import uvloop

from tools.image.root_file_system import (
    Root,
    is_left_out,
    without_symbols,
)

PACKAGES = Path(sys.prefix, "lib/python3.11/site-packages")


def test_links_are_copied_with_their_targets(tmp_path: Path) -> None:
    """A file below a linked folder is reached in the copy by the same names."""
    base = tmp_path / "base"
    (base / "usr/lib").mkdir(parents=True)
    (base / "lib").symlink_to("usr/lib")
    (base / "usr/lib/libz.so.1.2").write_text("content")
    (base / "usr/lib/libz.so.1").symlink_to("libz.so.1.2")
    (base / "usr/lib/unused.so").touch()
    root = Root(tmp_path / "root")
    root.folder.mkdir()

    root.add(base / "lib/libz.so.1")

    copy = root.folder / base.relative_to("/")
    assert copy.joinpath("lib").readlink() == Path("usr/lib")
    assert copy.joinpath("lib/libz.so.1").read_text() == "content"
    assert sorted(path.name for path in copy.glob("lib/*")) == ["libz.so.1", "libz.so.1.2"]


@pytest.mark.parametrize(
    ("path", "stays"),
    [
        (PACKAGES / "pyarrow/lib.cpython-311-x86_64-linux-gnu.so", True),
        (PACKAGES / "pyarrow/libarrow_python.so.2600", True),
        (PACKAGES / "pyarrow/libarrow_python.so.2600.1.0", False),
        (PACKAGES / "pyarrow/libarrow_flight.so.2600", False),
        (PACKAGES / "numpy/_core/tests", False),
        (PACKAGES / "numpy-2.4.6.dist-info/licenses/numpy/_core/include", True),
        (PACKAGES / "numpy-2.4.6.dist-info/METADATA", True),
        (PACKAGES / "numpy-2.4.6.dist-info/RECORD", False),
        (PACKAGES, True),
        (Path("/usr/local/lib/python3.11/site-packages"), False),
        (Path("/usr/local/lib/python3.11/asyncio"), True),
        (Path("/usr/local/lib/python3.11/test"), False),
        (Path(sys.prefix, "bin/python3"), True),
        (Path(sys.prefix, "bin/pygmentize"), False),
    ],
    ids=str,
)
def test_unused_parts_are_left_out(path: Path, *, stays: bool) -> None:
    """Installers, tests, headers and parts of Arrow stay out; licences are kept."""
    assert is_left_out(path) is not stays


def test_library_without_symbols_loads(tmp_path: Path) -> None:
    """A library that ends after its segments is smaller, and exports the same functions."""
    original = Path(uvloop.loop.__file__)
    smaller = tmp_path / original.name
    smaller.write_bytes(without_symbols(original.read_bytes()))

    assert smaller.stat().st_size < original.stat().st_size
    assert hasattr(ctypes.CDLL(str(smaller)), "PyInit_loop")


def test_other_files_keep_their_bytes() -> None:
    """A file that is no 64-bit program is not changed."""
    assert without_symbols(b"#!/bin/sh\n") == b"#!/bin/sh\n"
