"""Files of shared caches: their rights and size, a full tmpfs, and reasons why there are none."""

import asyncio
import os
import resource
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from lookup_core.cache.cached_answers import CacheDescription
from lookup_core.cache.row_cache import RowCache
from lookup_core.settings import CacheSettings
from service.resources.memory_reading import ProcessMemory
from service.resources.memory_shares import shared_file_bytes
from service.resources.shared_memory import Number, SharedCaches, SharedMemory
from service.resources.shared_place import SharedPlace, shared_place
from spark_client.transport.shared_cache import MappedCache
from tests.lookup_core.cache.row_caches import KINDS, CacheKind
from tests.service.engine.running import until

MIB = 2**20
GROUP, OTHER = 185, 1185  # of the files, and any
NUMBERS = KINDS["number"]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs programs as other users")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in a tmpfs, whose group is passed on as in a volume of a pod."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="test-") as name:
        folder = Path(name)
        if os.geteuid() == 0:
            os.chown(folder, 0, GROUP)
        folder.chmod(0o2755)
        yield folder


def description(max_bytes: int, kind: CacheKind = NUMBERS) -> CacheDescription:
    """A cache of this size."""
    return CacheDescription(kind.schema, 0, CacheSettings(max_bytes=max_bytes))


def shared(folder: Path) -> SharedMemory:
    """A shared cache next to a socket in this folder, with a row."""
    memory = SharedCaches.for_socket(folder / "s.sock").new("customers", description(MIB))
    assert memory is not None
    NUMBERS.fill(RowCache(NUMBERS.schema, CacheSettings(max_bytes=MIB), memory), [1], now=0.0)
    return memory


def ends_well(command: str, file: Path, *, group: int) -> bool:
    """Whether another user of this group can run a command on a file."""
    done = subprocess.run(
        ["/bin/sh", "-c", command, "sh", file],
        user=OTHER,
        group=group,
        extra_groups=[],
        cwd="/",
        check=False,
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    return done.returncode == 0


def test_folders_and_files_are_for_the_group(folder: Path) -> None:
    """Other users open no folder, the group writes nothing, and a reader maps read-only."""
    memory = shared(folder)

    folders = [memory.folder, memory.folder.parent, memory.folder.parent.parent]
    assert {stat.S_IMODE(each.stat().st_mode) & 0o777 for each in folders} == {0o750}
    files = list(memory.folder.iterdir())
    assert {stat.S_IMODE(each.stat().st_mode) for each in files} == {0o440}
    assert {each.stat().st_gid for each in files} == {folder.stat().st_gid}
    memory.extend_lease()
    with pytest.raises(ValueError, match="read-only"):
        MappedCache(memory.folder)._counts[0] = 1


@as_root
def test_other_groups_open_no_file(folder: Path) -> None:
    """A process without the group lists no folder and reads no file."""
    files = list(shared(folder).folder.iterdir())

    assert not any(ends_well('cat "$1"', file, group=OTHER) for file in files)
    assert not ends_well('ls "$1"', folder / "cache", group=OTHER)


@as_root
def test_group_reads_and_never_writes(folder: Path) -> None:
    """A process of the group reads each file, and cannot change, replace or remove one."""
    memory = shared(folder)
    files = list(memory.folder.iterdir())

    assert all(ends_well('cat "$1"', file, group=GROUP) for file in files)
    changes = (': >> "$1"', 'rm -f "$1"', 'mv "$1" "$1.old"', 'ln "$1" "$1.new"')
    for change in changes:
        assert not any(ends_well(change, file, group=GROUP) for file in files), change
    assert not ends_well('mkdir "$1/x"', folder / "cache", group=GROUP)


class Metered(SharedMemory):
    """Records the most bytes of its files."""

    most_bytes = 0

    def zeros(self, count: int, kind: type[Number]) -> npt.NDArray[Number]:
        """See `CacheMemory`."""
        array = super().zeros(count, kind)
        self.most_bytes = max(self.most_bytes, self.file_bytes)
        return array

    def rows(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """See `CacheMemory`."""
        stored = super().rows(rows)
        self.most_bytes = max(self.most_bytes, self.file_bytes)
        return stored


def test_files_fit_the_documented_size(folder: Path) -> None:
    """A small cache that fills, evicts, merges and shrinks has files of twice its size at most."""
    kind, max_bytes = KINDS["text"], MIB
    memory = Metered("customers", folder / "cache", description(max_bytes, kind))
    cache = RowCache(kind.schema, CacheSettings(max_bytes=max_bytes), memory)
    generator = np.random.default_rng(1)

    for first in range(0, 30_000, 1_000):
        numbers = range(first, first + 1_000)
        every = np.ones(1_000, np.bool_)
        now = first / 1e6
        cache.fill(
            kind.keys(numbers),
            every,
            rows=kind.rows(numbers),
            read_at=now,
            now=now,
            settles_later=False,
        )
        cache.probe(kind.keys(generator.integers(0, first + 1_000, 2_000).tolist()), now)
    for share in (0.8, 0.4, 1.0):
        cache.set_max_bytes(int(share * max_bytes))

    assert max_bytes / 2 < memory.most_bytes <= 2 * max_bytes
    assert shared_file_bytes(2 * MIB) == 3 * MIB + 64 * MIB
    assert shared_file_bytes(0) == 0


def test_shared_pages_count_once(folder: Path) -> None:
    """The memory that `limits.memory` bounds has the pages of shared files, once."""
    memory, process = SharedMemory("customers", folder / "cache", description(MIB)), ProcessMemory()
    before = process.read().resident_bytes

    array = memory.zeros(4 * MIB, np.uint64)
    array.fill(1)

    assert 0.9 < (process.read().resident_bytes - before) / array.nbytes < 1.5


@contextmanager
def mounted(folder: Path, *options: str) -> Iterator[None]:
    """A tmpfs at a new folder."""
    folder.mkdir()
    subprocess.run(["/bin/mount", "-t", "tmpfs", *options, "tmpfs", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["/bin/umount", "-l", folder], check=True)


def remount(folder: Path, options: str) -> None:
    """Change the options of a mount."""
    subprocess.run(["/bin/mount", "-o", f"remount,{options}", folder], check=True)


@as_root
def test_full_tmpfs_ends_sharing(tmp_path: Path) -> None:
    """Without room for a file the cache stays whole, readers use it no more, and a log says why."""
    folder = tmp_path / "small"
    with mounted(folder, "-o", "size=256k"):
        memory = SharedMemory("customers", folder / "cache", description(MIB))
        cache = RowCache(NUMBERS.schema, CacheSettings(max_bytes=MIB), memory)
        memory.extend_lease()
        reader = MappedCache(memory.folder)
        before = reader.reader()
        with capture_logs() as logs:
            for first in range(0, 8_000, 1_000):
                NUMBERS.fill(cache, range(first, first + 1_000), now=0.0)
        memory.extend_lease()
        after = reader.reader()

    why = (
        f"the tmpfs {folder} (0.25 MiB) is full; raise its size (in a pod, sizeLimit of its volume)"
        ": sharing begins again by itself"
    )
    assert (before is not None, after, memory.why_private) == (True, None, why)
    ended = {"event": "cache.sharing_ended", "dimension": "customers", "reason": why}
    assert logs == [ended | {"log_level": "warning"}]
    rows = cache.peek(NUMBERS.keys([0, 7_999]), 0.0).is_row
    assert rows.tolist() == [True, True]


@as_root
def test_files_may_be_what_a_tmpfs_lacks(tmp_path: Path) -> None:
    """The reason tells a lack of files from one of bytes; attempts to share again go on."""
    folder = tmp_path / "few"
    with mounted(folder, "-o", "nr_inodes=4"):
        caches = SharedCaches.for_socket(folder / "s.sock")
        memory = caches.new("customers", description(MIB))
        assert memory is not None
        cache = RowCache(NUMBERS.schema, CacheSettings(max_bytes=MIB), memory)
        caches.add(memory, cache)

        async def run() -> None:
            async with asyncio.TaskGroup() as tasks:
                running = tasks.create_task(caches.run())
                await asyncio.sleep(0)
                remount(folder, "nr_inodes=99")
                await until(lambda: memory.is_shared_now)
                running.cancel()

        why = memory.why_private
        asyncio.run(run())

    assert why == (
        f"the tmpfs {folder} has 4 files, all that it may have; remove some, or raise its "
        "nr_inodes: sharing begins again by itself"
    )


@as_root
def test_latest_mount_at_a_place_counts(tmp_path: Path) -> None:
    """A file system that hides a tmpfs is none in memory; names of mounts have any bytes."""
    latin, spaced = Path(os.fsdecode(bytes(tmp_path) + b"/th\xe9")), tmp_path / "my dir"
    with mounted(latin), mounted(spaced):
        place = shared_place(spaced / "s.sock")
        subprocess.run(["/bin/mount", "--bind", tmp_path, spaced], check=True)
        hidden = shared_place(spaced / "s.sock")
        subprocess.run(["/bin/umount", spaced], check=True)

    assert isinstance(place, SharedPlace)
    assert (place.folder, place.mount) == (spaced / "cache", spaced)
    assert isinstance(hidden, SharedPlace)
    assert hidden.mount == Path("/dev/shm")


def test_check_needs_no_file_descriptor(folder: Path) -> None:
    """A process without free file descriptors goes on sharing what it shares."""
    memory = shared(folder)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        memory.check()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    assert memory.is_shared_now


def test_limits_of_the_process_are_named(folder: Path) -> None:
    """A limit of the process that ends sharing is named, and not the rights of the folder."""
    former = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIB // 1024, former[1]))
    try:
        memory = SharedCaches.for_socket(folder / "s.sock").new("customers", description(MIB))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, former)

    assert memory is not None
    assert memory.why_private == (
        f"{folder}/cache: the process may write no file of this size; raise it (ulimit -f):"
        " sharing begins again by itself"
    )


def test_private_caches_have_a_reason(folder: Path) -> None:
    """Without a Unix socket, or in a folder that is none, no cache is shared."""
    (folder / "cache").touch()

    of_nothing, of_file = SharedCaches.for_socket(None), SharedCaches.for_socket(folder / "s.sock")

    memory = of_file.new("customers", description(MIB))
    assert of_nothing.new("customers", description(MIB)) is None
    assert of_nothing.why_private == "listen.unix is null"
    assert memory is not None
    assert memory.why_private == (
        f"{folder}/cache cannot be written: File exists; make it writable for the sidecar:"
        " sharing begins again by itself"
    )
