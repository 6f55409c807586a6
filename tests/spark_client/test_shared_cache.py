"""Files of a sidecar's cache in a worker: other layouts, rights, replaced files, leases."""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pytest

from lookup_core.cache.cached_answers import CacheDescription
from lookup_core.cache.row_cache import RowCache
from lookup_core.cache.shared_layout import LAYOUT_VERSION, CacheMap, LeaseField
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.keys.canonical_keys import canonical_keys
from lookup_core.lookup_options import LookupOptions
from lookup_core.protocol import frames
from lookup_core.settings import CacheSettings
from service.resources.shared_memory import SharedMemory
from spark_client.transport.connection import Connection
from spark_client.transport.shared_cache import MappedCache, boot_time
from tests.hand_clock import HandClock
from tests.lookup_core.cache.row_caches import KINDS
from tests.spark_client.builders import (
    DIMENSIONS,
    KEY,
    NO_PAUSE,
    REQUEST,
    WAIT_S,
    look_up,
    received,
)
from tests.spark_client.memory_transport import Behaviour, ReachableSidecar

KIND = KINDS["text"]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes time namespaces")
SETTINGS = CacheSettings(ttl_s=60.0)


class Sidecar:
    """A cache with a row in files, and its lease."""

    def __init__(self, folder: Path) -> None:
        self.clock = HandClock(100.0)
        self.folder = folder
        description = CacheDescription(KIND.schema, 0, SETTINGS)
        self.memory = SharedMemory("customers", folder, description, clock=self.clock)
        self.cache = RowCache(KIND.schema, SETTINGS, self.memory)
        self.fill(1)
        self.memory.extend_lease()

    def fill(self, *numbers: int) -> None:
        """Cache rows."""
        every, rows = np.ones(len(numbers), np.bool_), KIND.rows(numbers)
        self.cache.fill(
            KIND.keys(numbers), every, rows=rows, read_at=100.0, now=100.0, settles_later=False
        )

    def worker(self) -> MappedCache:
        """A reader of the files."""
        return MappedCache(self.folder, clock=self.clock)


@pytest.fixture
def sidecar() -> Iterator[Sidecar]:
    """The cache of a sidecar, in memory, in a folder that every user may enter."""
    with TemporaryDirectory(prefix="sidelook-", dir="/dev/shm") as name:  # a tmpfs
        Path(name).chmod(0o755)
        yield Sidecar(Path(name) / "cache")


def found(cache: MappedCache, *numbers: int) -> list[int] | None:
    """The rows that a lookup finds; None if it must go by the stream."""
    reader = cache.reader()
    if reader is None:
        return None
    rows = reader.read(KIND.keys(numbers), ["position"], 100.0).rows.rows
    return sorted(rows.column(0).to_pylist())


def mapped_files(folder: Path) -> list[str]:
    """The files of a folder that this process has mapped for reading only."""
    maps = Path("/proc/self/maps").read_text()
    return re.findall(rf"r--s .* {folder}/(\S+)", maps)


def test_other_layouts_are_refused(sidecar: Sidecar) -> None:
    """Files of another layout are not read: the error names both versions."""
    lease = np.memmap(sidecar.folder / "lease", np.uint64, "r+")
    lease[LeaseField.LAYOUT] = LAYOUT_VERSION + 1

    with pytest.raises(ValueError, match=rf"layout {LAYOUT_VERSION + 1} of .* {LAYOUT_VERSION}"):
        sidecar.worker()


def in_time_namespace(code: str, *arguments: object) -> str:
    """What Python prints in a time namespace, whose clock counts an hour of suspension more."""
    command = ("/usr/bin/unshare", "--time", "--boottime=3600", sys.executable, "-c", code)
    return subprocess.run(
        [*command, *map(str, arguments)], check=True, capture_output=True, text=True
    ).stdout


@as_root
def test_suspended_time_ages_rows() -> None:
    """While the machine is suspended, rows age and leases end: both sides use such a clock."""
    code = """
import time
from service.resources import shared_memory
from spark_client.transport import shared_cache
print([round(each.boot_time() - time.monotonic(), 1) for each in (shared_memory, shared_cache)])
"""

    before = round(boot_time() - time.monotonic(), 1)

    assert in_time_namespace(code) == f"{[before + 3600.0] * 2}\n"


@as_root
def test_other_time_namespaces_are_refused(sidecar: Sidecar) -> None:
    """A container whose clock differs from that of the sidecar does not read its files."""
    code = """
import sys
from pathlib import Path
from spark_client.transport.shared_cache import MappedCache
try:
    MappedCache(Path(sys.argv[1]))
except ValueError as error:
    print(error)
"""

    found = in_time_namespace(code, sidecar.folder)

    assert found == f"{sidecar.folder} has times of another time namespace\n"


def test_unreadable_folders_are_refused(sidecar: Sidecar) -> None:
    """A folder that another user may not enter, or that does not exist, is an OSError."""
    with pytest.raises(FileNotFoundError):
        MappedCache(sidecar.folder / "none")
    former = os.geteuid()
    sidecar.folder.chmod(0o700 if former == 0 else 0)
    try:
        if former == 0:
            os.seteuid(65_534)
        with pytest.raises(PermissionError):
            sidecar.worker()
    finally:
        os.seteuid(former)
        sidecar.folder.chmod(0o750)


def test_replaced_files_are_unmapped(sidecar: Sidecar) -> None:
    """What the cache has replaced is unmapped by the next lookup, or when the worker is idle."""
    worker = sidecar.worker()
    assert found(worker, 1) == [1]
    before = mapped_files(sidecar.folder)

    sidecar.fill(*range(2, 2_000))
    assert found(worker, 1, 1_999) == [1, 1_999]
    between = mapped_files(sidecar.folder)
    sidecar.cache.clear()
    worker.release()

    assert not set(before) & set(between) - {"lease"}
    assert not set(between) & set(mapped_files(sidecar.folder)) - {"lease"}
    assert found(worker, 1) == []


def test_idle_worker_maps_nothing(sidecar: Sidecar) -> None:
    """A worker without lookups maps no new files: it would keep each one that is replaced."""
    worker = sidecar.worker()
    assert found(worker, 1) == [1]
    before = mapped_files(sidecar.folder)

    sidecar.fill(*range(2, 2_000))
    worker.release()

    assert set(mapped_files(sidecar.folder)) < set(before)
    assert found(worker, 1, 1_999) == [1, 1_999]


def test_files_removed_meanwhile_are_no_fault(sidecar: Sidecar) -> None:
    """While files of the map are removed, lookups go by the stream; then by the next map."""
    worker = sidecar.worker()
    path = sidecar.folder / "map"
    content = path.read_bytes()
    files = CacheMap.decoded(content)
    (sidecar.folder / files.segments[0].name).rename(sidecar.folder / "aside")
    assert found(worker, 1) is None
    path.unlink()
    assert found(worker, 1) is None

    (sidecar.folder / "aside").rename(sidecar.folder / files.segments[0].name)
    path.write_bytes(content)
    assert found(worker, 1) == [1]
    sidecar.fill(2)
    assert found(worker, 1, 2) == [1, 2]


def test_files_that_cannot_be_mapped_are_bypassed(
    sidecar: Sidecar, caplog: pytest.LogCaptureFixture
) -> None:
    """Without the right to map a file, lookups go by the stream, and one line reports it."""
    worker = sidecar.worker()
    path = sidecar.folder / "map"
    content = path.read_bytes()
    path.unlink()
    path.mkdir()  # an OSError, as too many open files are
    assert [found(worker, 1), found(worker, 1)] == [None, None]
    path.rmdir()
    path.write_bytes(content)

    assert found(worker, 1) == [1]
    assert len(caplog.records) == 1
    assert str(sidecar.folder) in caplog.text


def cut(path: Path, size: int) -> None:
    """Leave this many bytes of a file; the cache keeps the former file."""
    content = path.read_bytes()[:size]
    path.unlink()
    path.write_bytes(content)


def other_rows(path: Path) -> None:
    """Put rows of another cache into a segment."""
    other = pa.record_batch({"position": ["a"]})
    path.unlink()
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, other.schema) as writer:
        writer.write_batch(other)


def assert_bypassed_once(worker: MappedCache, caplog: pytest.LogCaptureFixture) -> None:
    """Lookups go by the stream, also after a release, and one line reports it."""
    assert [found(worker, 1), found(worker, 1)] == [None, None]
    worker.release()
    assert len(caplog.records) == 1
    assert "lookups bypass the shared cache " in caplog.text


TEXTS = [b"", b"no JSON", b"null", b"[1, 2]", b"{}", b"[[], 1, 1, [], []]", b"[" * 100_000, b"\xff"]
FOREIGN: dict[str, Callable[[CacheMap], CacheMap]] = {
    "a path": lambda files: replace(files, arrays=files.arrays._replace(places="../lease")),
    "other arrays": lambda files: replace(
        files, arrays=files.arrays._replace(hashes=files.arrays.places)
    ),
    "an address": lambda files: replace(files, segments=[files.segments[0]._replace(start=-1)]),
    "a row twice": lambda files: replace(files, segments=[*files.segments, *files.segments]),
    "no tick": lambda files: replace(files, first_tick=None),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("content", [*TEXTS, *FOREIGN], ids=lambda text: str(text)[:14])
def test_damaged_maps_are_bypassed(
    sidecar: Sidecar, caplog: pytest.LogCaptureFixture, content: bytes | str
) -> None:
    """With a map that no cache has, lookups go by the stream, until the next map."""
    worker, path = sidecar.worker(), sidecar.folder / "map"
    if isinstance(content, str):
        content = FOREIGN[content](CacheMap.decoded(path.read_bytes())).encoded()
    path.write_bytes(content)

    assert_bypassed_once(worker, caplog)
    sidecar.fill(2)
    assert found(worker, 1, 2) == [1, 2]


@pytest.mark.parametrize("name", ["places", "hashes", "states", "addresses", "rows"])
@pytest.mark.parametrize("size", [0, 12, 256, 300])  # the third one is a power of two
def test_cut_files_are_bypassed(
    sidecar: Sidecar, caplog: pytest.LogCaptureFixture, name: str, size: int
) -> None:
    """A file that is too short when it is mapped is not read."""
    worker, files = sidecar.worker(), CacheMap.decoded((sidecar.folder / "map").read_bytes())
    is_rows = name == "rows"
    path = sidecar.folder / (files.segments[0].name if is_rows else getattr(files.arrays, name))
    cut(path, size)

    assert_bypassed_once(worker, caplog)


def test_rows_of_other_caches_are_bypassed(
    sidecar: Sidecar, caplog: pytest.LogCaptureFixture
) -> None:
    """Rows with other columns than the description says are not read."""
    worker, files = sidecar.worker(), CacheMap.decoded((sidecar.folder / "map").read_bytes())
    other_rows(sidecar.folder / files.segments[0].name)

    assert_bypassed_once(worker, caplog)


@pytest.mark.parametrize("size", [0, 8, 4095])
def test_cut_leases_are_refused(sidecar: Sidecar, size: int) -> None:
    """A lease page of another size is a ValueError, so that no read goes beyond the file."""
    cut(sidecar.folder / "lease", size)

    with pytest.raises(ValueError):  # noqa: PT011  # mmap has its own text for empty files
        sidecar.worker()


def test_ended_lease_frees_everything(sidecar: Sidecar) -> None:
    """Without a lease nothing is read; an idle worker unmaps all, and maps it again with one."""
    worker = sidecar.worker()
    assert found(worker, 1) == [1]

    sidecar.clock.now_s += 0.6
    assert found(worker, 1) is None
    worker.release()
    assert mapped_files(sidecar.folder) == ["lease"]
    sidecar.memory.extend_lease()

    assert found(worker, 1) == [1]


def test_dead_sidecar_is_read_until_its_lease_ends(sidecar: Sidecar) -> None:
    """A sidecar that was killed leaves its files; without them, mapped rows stay readable."""
    worker = sidecar.worker()
    assert found(worker, 1) == [1]
    shutil.rmtree(sidecar.folder)

    assert found(worker, 1) == [1]
    sidecar.clock.now_s += 0.6
    assert found(worker, 1) is None
    with pytest.raises(FileNotFoundError):
        sidecar.worker()


class SharedDimension:
    """The cache of one row, with the lease of a sidecar whose clock a test sets."""

    def __init__(self, folder: Path) -> None:
        self.clock = HandClock(100.0)
        schema = DimensionSchema(KEY, pa.schema({"name": pa.utf8()}))
        self.memory = SharedMemory(
            "customers",
            folder / "cache" / "1",
            CacheDescription(schema, 0, SETTINGS),
            clock=self.clock,
        )
        self.cache = RowCache(schema, SETTINGS, self.memory)
        self.rows = pa.record_batch([pa.array(["Ada"])], schema=schema.columns)
        self.keys = pa.record_batch([pa.array([7])], schema=KEY)
        self.fill()
        self.memory.extend_lease()

    def fill(self) -> None:
        """Cache the row."""
        keys, every = canonical_keys(self.keys), np.ones(1, np.bool_)
        self.cache.fill(keys, every, rows=self.rows, read_at=100.0, now=100.0, settles_later=False)

    def connection(self, folder: str) -> tuple[ReachableSidecar, Connection]:
        """A sidecar that offers the cache by this name of its folder, and a connection to it."""
        fake = ReachableSidecar(DIMENSIONS, Behaviour(cache=folder))
        url = f"unix://{self.memory.folder.parent.parent}/s.sock"
        return fake, Connection(
            fake.connect,
            url=url,
            timing=replace(NO_PAUSE, clock=self.clock, cache_clock=self.clock),
        )


@pytest.fixture
def shared() -> Iterator[SharedDimension]:
    """A shared cache next to a socket."""
    with TemporaryDirectory(prefix="sidelook-", dir="/dev/shm") as name:
        yield SharedDimension(Path(name))


@pytest.mark.parametrize("is_relative", [True, False])
def test_folder_is_found_next_to_the_socket(shared: SharedDimension, *, is_relative: bool) -> None:
    """The folder that OPENED names may be relative to that of the socket, in the client's view."""
    fake, connection = shared.connection("cache/1" if is_relative else str(shared.memory.folder))

    channel = connection.open(REQUEST)
    look_up(channel, 1, 7)
    (answer,) = channel.answers(WAIT_S)

    assert answer.answer.rows == shared.rows
    assert received(fake, frames.Lookup) == []
    channel.close()


def test_files_are_unmapped_after_a_gap_of_the_lease(shared: SharedDimension) -> None:
    """A channel that uses the cache again after a gap still unmaps what is replaced."""
    _, connection = shared.connection("cache/1")
    channel = connection.open(REQUEST)
    assert channel.cached(shared.keys) is not None
    shared.clock.now_s += 2.5
    connection._report_uses()
    assert channel.cached(shared.keys) is None
    shared.memory.extend_lease()
    assert channel.cached(shared.keys) is not None

    shared.cache.clear()
    connection._report_uses()

    assert [each for each in mapped_files(shared.memory.folder) if each.startswith("rows")] == []
    channel.close()


def test_visits_are_reported_without_answers(shared: SharedDimension) -> None:
    """Rows that are too old for a channel count as visited, and their slots do not add up."""
    fake, connection = shared.connection("cache/1")
    request = replace(REQUEST, options=LookupOptions(max_age_ms=1_000))
    channel = connection.open(request)
    shared.clock.now_s += 0.5
    shared.memory.extend_lease()
    shared.clock.now_s += 0.55
    shared.memory.extend_lease()

    found = channel.cached(shared.keys)
    channel.close()

    assert found is not None
    assert (found.size, found.visited.tolist()) == (0, [0])
    (report,) = received(fake, frames.Cached)
    assert (report.hits, np.frombuffer(report.visited, "<i4").tolist()) == (0, [0])
