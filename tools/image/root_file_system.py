"""Root file system of the image, assembled in the build stage of the Dockerfile.

It holds the environment, the code, the interpreter and the files of the base image that they need,
without a shell. Equal inputs give equal bytes. Imports the standard library only: the environment's
interpreter runs it as `python root_file_system.py ROOT FOLDER…`.
"""

import compileall
import os
import py_compile
import shutil
import ssl
import stat
import struct
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

USER = 185  # of the pod template; the group has the same number
SOCKETS = "run/sidelook"
# The last parts of paths that are not copied.
LEFT_OUT = (
    "__pycache__",  # compiled here
    # tests, headers, sources and type stubs of packages
    *("tests", "include", "pyarrow/src", "numpy/f2py"),
    *("*.pyx", "*.pxi", "*.pxd", "*.pyi", "*.c", "*.h", "*.cc", "*.cpp", "*.a"),
    # parts of Arrow that the service does not import, and further names of its libraries
    *("pyarrow/*flight*", "pyarrow/*s3*", "pyarrow/*_tests*"),
    *("pyarrow/libarrow_python*.so", "pyarrow/lib*.so.*.*.*"),
    # the standard library's installers, terminals, databases, and programs for developers
    *("python3.*/ensurepip", "python3.*/venv", "python3.*/config-*"),
    *("python3.*/test", "python3.*/lib2to3", "python3.*/idlelib", "python3.*/pydoc_data"),
    *("python3.*/tkinter", "python3.*/turtle*", "python3.*/curses", "python3.*/sqlite3"),
    *("python3.*/distutils", "lib-dynload/*_test*", "lib-dynload/*xx*", "lib-dynload/_crypt*"),
    *(f"lib-dynload/{name}*" for name in ("_tkinter", "_curses", "readline", "_sqlite3")),
    *(f"lib-dynload/{name}*" for name in ("_dbm", "_gdbm", "nis", "ossaudiodev")),
    # further copies of the time zones
    *("zoneinfo/posix", "zoneinfo/right"),
)
COMMANDS = ("python*", "sidelook")  # of the environment
_SETTINGS = ("/etc/os-release", "/etc/debian_version", "/etc/nsswitch.conf", "/usr/share/zoneinfo")
_NAMES = {
    "etc/passwd": "{name}:x:{number}:{number}::/nonexistent:/usr/sbin/nologin\n",
    "etc/group": "{name}:x:{number}:\n",
}
_PACKAGES = Path("/var/lib/dpkg")
_ELF_64_LITTLE_ENDIAN = b"\x7fELF\x02\x01"


class Root:
    """A root file system that grows by copies from the one of this process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.copied: list[Path] = []  # files, as they are named in the root of this process

    def add(self, path: Path) -> None:
        """Copy a file, or a folder without what is left out, and what links lead to."""
        place = self._real(path.parent) / path.name
        if os.path.lexists(place) and not path.is_dir():
            return
        if path.is_symlink():
            place.symlink_to(path.readlink())
            if path.exists():
                self.add(_target(path))
        elif path.is_dir():
            self._real(path)
            for each in sorted(path.iterdir()):
                if not is_left_out(each):
                    self.add(each)
        else:
            shutil.copy(path, place)
            self.copied.append(path)

    def write(self, path: str, text: str) -> None:
        """Write a file that the base image has not, or in another way."""
        place = self.folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def _real(self, path: Path) -> Path:
        """The copy of a folder, with the same links above it."""
        if path == path.parent:
            return self.folder
        place = self._real(path.parent) / path.name
        if not path.is_symlink():
            place.mkdir(exist_ok=True)
            place.chmod(path.stat().st_mode)
            return place
        if not place.is_symlink():
            place.symlink_to(path.readlink())
        return self._real(_target(path))


def is_left_out(path: Path) -> bool:
    """Whether the image does without this file or folder; metadata and licences stay."""
    if any(part.endswith(".dist-info") for part in path.parts[:-1]):
        return path.name == "RECORD"  # a list of files that names those left out, too
    if path.parent == Path(sys.prefix, "bin"):
        return not any(path.match(name) for name in COMMANDS)
    if path.name in {"site-packages", "dist-packages"}:
        return not path.is_relative_to(sys.prefix)
    return any(path.match(pattern) for pattern in LEFT_OUT)


def without_symbols(content: bytes) -> bytes:
    """A shared library up to the last byte of its segments; other content as it is.

    What follows is the symbols and the table of sections, which only linkers and debuggers read.
    """
    if not content.startswith(_ELF_64_LITTLE_ENDIAN):
        return content
    (start,) = struct.unpack_from("<Q", content, 32)
    size, count = struct.unpack_from("<HH", content, 54)
    ends = [start + size * count]
    for place in range(start, start + size * count, size):
        offset, stored_bytes = struct.unpack_from("<8xQ16xQ", content, place)
        ends.append(offset + stored_bytes)
    kept = bytearray(content[: max(ends)])
    struct.pack_into("<Q", kept, 40, 0)  # there is no table of sections,
    struct.pack_into("<HH", kept, 60, 0, 0)  # of no entries and without names
    return bytes(kept)


def shared_libraries(files: Iterable[Path]) -> list[Path]:
    """All libraries that these files load; raises SystemExit if one does not exist."""
    command = ["/usr/bin/ldd", *map(str, files)]
    listed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout
    lines = [line for line in listed.splitlines() if line.startswith("\t")]
    missing = {line.strip() for line in lines if "not found" in line}
    if missing:
        raise SystemExit(f"libraries are missing in the base image: {', '.join(sorted(missing))}")
    words = {word for line in lines for word in line.split() if word.startswith("/")}
    return sorted(map(Path, words))


def package_records(copied: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """The Debian packages of these files, and their entries in the database of packages."""
    owners = dict(_owners())
    names = {owners[path] for path in map(_without_links, copied) if path in owners}
    for entry in sorted(_PACKAGES.joinpath("status").read_text().split("\n\n")):
        name = entry.strip().partition("\n")[0].removeprefix("Package: ")
        if name in names:
            yield name, f"{entry.strip()}\n"


def _owners() -> Iterator[tuple[str, str]]:
    for listed in sorted(_PACKAGES.glob("info/*.list")):
        for path in listed.read_text().splitlines():
            yield _without_links(Path(path)), listed.stem.partition(":")[0]


def _without_links(path: Path) -> str:
    # Packages name files in /lib, which is a link to /usr/lib.
    return f"{_real_name(str(path.parent))}/{path.name}"


@cache
def _real_name(folder: str) -> str:
    return os.path.realpath(folder)


def _target(link: Path) -> Path:
    return Path(os.path.normpath(link.parent / link.readlink()))


def assemble(root: Root, folders: Sequence[Path]) -> None:
    """Fill the root with the environment, the interpreter, these folders, and what they need."""
    library = Path(sysconfig.get_path("stdlib"))
    environment = Path(sys.prefix)
    for path in (environment, library, *folders):
        root.add(path)
    programs = [path for path in root.copied if ".so" in path.name or path.parent.name == "bin"]
    loaded = shared_libraries(path for path in programs if _is_program(path))
    certificates = ssl.get_default_verify_paths()
    found = [certificates.openssl_cafile, certificates.openssl_capath]
    settings = [*found, str(Path(found[0]).with_name("openssl.cnf")), *_SETTINGS]
    for path in (*loaded, *map(Path, settings)):
        if os.path.lexists(path) and not path.is_relative_to(environment):
            root.add(path)
    _add_packages(root)
    _remove_symbols(root.folder / environment.relative_to("/"))
    _make_folders(root)
    for path in (environment, library, *folders):
        _compile(root.folder, path)
    _set_modes_and_times(root.folder)


def _is_program(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == _ELF_64_LITTLE_ENDIAN[:4]


def _add_packages(root: Root) -> None:
    # Scanners of images read the packages there if there is no package manager.
    for name, entry in package_records(root.copied):
        root.write(f"var/lib/dpkg/status.d/{name}", entry)
        notice = Path("/usr/share/doc", name, "copyright")
        if notice.exists():
            root.add(notice)


def _remove_symbols(folder: Path) -> None:
    for path in folder.rglob("*.so*"):
        if not path.is_symlink():
            path.write_bytes(without_symbols(path.read_bytes()))


def _make_folders(root: Root) -> None:
    for name, line in _NAMES.items():
        users = {"root": 0, "sidelook": USER}
        texts = (line.format(name=user, number=number) for user, number in users.items())
        root.write(name, "".join(texts))
    for name in ("dev", "proc", "sys", "tmp", SOCKETS):
        root.folder.joinpath(name).mkdir(parents=True, exist_ok=True)
    root.folder.joinpath("tmp").chmod(0o1777)
    os.chown(root.folder / SOCKETS, USER, USER)
    root.folder.joinpath(SOCKETS).chmod(0o770)


def _compile(root: Path, path: Path) -> None:
    # The running image cannot write. Compiled files carry no time: equal sources give equal files.
    done = compileall.compile_dir(
        root / path.relative_to("/"),
        quiet=1,
        stripdir=root,
        prependdir="/",
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )
    if not done:
        raise SystemExit(f"{path} has files that are not Python 3")


def _set_modes_and_times(root: Path) -> None:
    # Of the checkout and of packages they depend on the umask of their user.
    for path in (*root.rglob("*"), root):
        if not path.is_symlink() and path not in (root / "tmp", root / SOCKETS):
            is_program = path.is_dir() or path.stat().st_mode & stat.S_IXUSR
            path.chmod(0o755 if is_program else 0o644)
        os.utime(path, (0, 0), follow_symlinks=False)


if __name__ == "__main__":
    Path(sys.argv[1]).mkdir()
    assemble(Root(Path(sys.argv[1])), [Path(each) for each in sys.argv[2:]])
