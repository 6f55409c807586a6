"""Memory of caches in files: the contract of `CacheMemory`, leases, full file systems, folders."""

import asyncio
import errno
import fcntl
import gc
import math
import os
import resource
import shutil
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import structlog

from lookup_core.cache.cache_memory import CacheMemory, OwnMemory
from lookup_core.cache.cached_answers import CacheDescription
from lookup_core.cache.row_cache import RowCache
from lookup_core.settings import CacheMode, CacheSettings
from lookup_core.table.full_table import FullTable
from lookup_core.table.reload import Reload
from service.resources.shared_memory import SharedCaches, SharedMemory, boot_time
from spark_client.transport.shared_cache import MappedCache
from tests.hand_clock import HandClock
from tests.lookup_core.cache.row_caches import KINDS
from tests.service.engine.running import until

KIND = KINDS["number"]
SETTINGS = CacheSettings(ttl_s=60.0)
DESCRIPTION = CacheDescription(KIND.schema, 0, SETTINGS)
SMALL_BYTES = 4096  # the lease and the description fit


@pytest.fixture(autouse=True)
def _usual_umask() -> Iterator[None]:
    former = os.umask(0o022)
    yield
    os.umask(former)


@pytest.fixture
def clock() -> HandClock:
    """The clock of both sides."""
    return HandClock(100.0)


@pytest.fixture
def memory(tmp_path: Path, clock: HandClock) -> SharedMemory:
    """Memory in a new folder, with a lease."""
    memory = SharedMemory("customers", tmp_path / "cache", DESCRIPTION, clock=clock)
    memory.extend_lease()
    return memory


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Limit files to this size: a longer write is cut, and the next one fails."""
    former = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, former[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, former)


def fill(cache: RowCache, *numbers: int, now: float = 100.0) -> None:
    """Cache a row for each of these keys."""
    every, rows = np.ones(len(numbers), np.bool_), KIND.rows(numbers)
    cache.fill(KIND.keys(numbers), every, rows=rows, read_at=now, now=now, settles_later=False)
    cache.check_invariants()


def read(cache: MappedCache, *numbers: int, now: float = 100.0) -> list[int] | None:
    """The values that a reader finds; None without a reader."""
    reader = cache.reader()
    if reader is None:
        return None
    found = reader.read(KIND.keys(numbers), ["position"], now).rows
    return sorted(found.rows.column(0).to_pylist())


@asynccontextmanager
async def running(caches: SharedCaches) -> AsyncIterator[None]:
    """The caches are kept by their task, which has begun, until the end of the block."""
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(caches.run())
        await asyncio.sleep(0)
        yield
        task.cancel()


@pytest.mark.parametrize("is_shared", [False, True])
@pytest.mark.parametrize("name", ["number", "text", "composite", "number, no columns"])
def test_cache_works_in_any_memory(tmp_path: Path, name: str, *, is_shared: bool) -> None:
    """A cache has the same entries in each memory, through growth, removal and a smaller bound."""
    kind = KINDS[name]
    memory: CacheMemory = OwnMemory()
    if is_shared:
        memory = SharedMemory(
            "customers", tmp_path / "cache", CacheDescription(kind.schema, 0, SETTINGS)
        )
    cache = RowCache(kind.schema, SETTINGS, memory)

    for first in range(0, 2_000, 100):
        kind.fill(cache, range(first, first + 100), now=100.0)
    cache.invalidate(kind.keys(range(0, 2_000, 2)))
    assert kind.found_at(cache, range(4), 100.0) == [None, kind.row(1), None, kind.row(3)]
    cache.set_max_bytes(cache.bytes // 2)

    found = [each for each in kind.found_at(cache, range(2_000), 100.0) if each is not None]
    assert found
    assert set(found) <= {kind.row(number) for number in range(1, 2_000, 2)}
    assert cache.clear() == len(found)


def test_files_end_with_their_use(memory: SharedMemory) -> None:
    """Files of replaced arrays and rows are removed, and the bytes are those of the others."""
    cache = RowCache(KIND.schema, SETTINGS, memory)
    for first in range(0, 2_000, 100):
        fill(cache, *range(first, first + 100))
    before = memory.file_bytes

    cache.clear()

    gc.collect()
    files = {each.name: each.stat().st_size for each in memory.folder.iterdir()}
    assert len(files) == 7  # the lease, the description, the map and four arrays
    sizes = [size for name, size in files.items() if name not in {"description", "map"}]
    assert memory.file_bytes == sum(sizes) < before


def test_readers_find_what_is_cached(memory: SharedMemory, clock: HandClock) -> None:
    """A reader finds rows until they are invalidated, also behind a growth of the cache."""
    cache = RowCache(KIND.schema, SETTINGS, memory)
    shared = MappedCache(memory.folder, clock=clock)
    fill(cache, 1, 2, 3)
    assert read(shared, 1, 2, 4) == [1, 2]

    cache.invalidate(KIND.keys([1]))
    assert read(shared, 1, 2, 4) == [2]
    fill(cache, *range(4, 2_000))

    assert read(shared, 1, 2, 4, 1_999) == [2, 4, 1_999]
    assert read(shared, 2, now=160.0) == []


def test_lease_ends_unless_it_is_extended(memory: SharedMemory, clock: HandClock) -> None:
    """Readers use a cache for 0.6 s after the last extension, and again behind the next one."""
    cache = RowCache(KIND.schema, SETTINGS, memory)
    shared = MappedCache(memory.folder, clock=clock)
    fill(cache, 1)

    clock.now_s = 100.59
    assert read(shared, 1) == [1]
    clock.now_s = 100.6
    assert read(shared, 1) is None
    memory.extend_lease()
    assert read(shared, 1) == [1]
    memory.end_lease()
    assert read(shared, 1) is None


def test_distrust_ends_the_lease(memory: SharedMemory, clock: HandClock) -> None:
    """While changes may be unreported, no lease begins."""
    RowCache(KIND.schema, SETTINGS, memory)
    shared = MappedCache(memory.folder, clock=clock)

    memory.allow_reads(until=-math.inf)
    memory.extend_lease()
    assert not shared.has_lease
    memory.allow_reads(until=math.inf)
    memory.extend_lease()
    assert shared.has_lease


def test_closed_cache_is_not_read(memory: SharedMemory, clock: HandClock) -> None:
    """The end of a cache removes its folder; readers that have mapped it find no lease."""
    cache = RowCache(KIND.schema, SETTINGS, memory)
    shared = MappedCache(memory.folder, clock=clock)
    fill(cache, 1)
    assert read(shared, 1) == [1]

    memory.close()
    memory.extend_lease()

    assert read(shared, 1) is None
    assert not memory.folder.exists()
    fill(cache, 2)
    assert KIND.found_at(cache, [1, 2], 100.0) == [KIND.row(1), KIND.row(2)]


def test_closed_cache_keeps_no_file_open(tmp_path: Path) -> None:
    """A schema change replaces a cache; nothing of the former one stays open."""
    before = [*Path("/proc/self/fd").iterdir()]
    for number in range(3):
        description = CacheDescription(KIND.schema, 0, SETTINGS)
        memory = SharedMemory("customers", tmp_path / str(number), description)
        fill(RowCache(KIND.schema, SETTINGS, memory), 1)
        memory.close()
        del memory

    gc.collect()

    assert len([*Path("/proc/self/fd").iterdir()]) == len(before)


def test_full_file_system_ends_sharing_only(memory: SharedMemory, clock: HandClock) -> None:
    """Without room for a file, the cache goes on in private memory, and readers leave it."""
    cache = RowCache(KIND.schema, SETTINGS, memory)
    shared = MappedCache(memory.folder, clock=clock)
    fill(cache, 1)

    with largest_file(SMALL_BYTES), structlog.testing.capture_logs() as logs:
        fill(cache, *range(2, 3_000))
    fill(cache, 3_000)
    memory.extend_lease()

    assert read(shared, 1) is None
    assert memory.why_private
    assert [each["event"] for each in logs] == ["cache.sharing_ended"]
    found = KIND.found_at(cache, range(1, 3_001), 100.0)
    assert found == [KIND.row(number) for number in range(1, 3_001)]


def test_map_without_room_is_not_published(memory: SharedMemory, clock: HandClock) -> None:
    """A map of which only a part can be written is no map: sharing ends."""
    cache = RowCache(KIND.schema, SETTINGS, memory)
    shared = MappedCache(memory.folder, clock=clock)
    fill(cache, 1)
    before = (memory.folder / "map").read_bytes()

    with largest_file(len(before) // 2), structlog.testing.capture_logs():
        cache.entries._published = None
        cache.entries.publish()
    memory.extend_lease()

    assert (memory.folder / "map").read_bytes() == before
    assert memory.why_private
    assert read(shared, 1) is None


def test_folder_in_use_is_refused(memory: SharedMemory) -> None:
    """Two caches never have the same folder."""
    with pytest.raises(FileExistsError):
        SharedMemory("customers", memory.folder, DESCRIPTION)


def test_folders_of_dead_processes_are_removed(tmp_path: Path) -> None:
    """The first cache removes folders whose lock is free, and no others."""
    parent = tmp_path / "cache"
    for name in ("dead", "live", "foreign"):
        (parent / name).mkdir(parents=True)
    for name in ("dead", "live"):
        (parent / name / "lock").touch()
    (parent / "file").touch()
    with (parent / "live" / "lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # as the process of this folder does

        cache = SharedCaches(parent).new("customers", DESCRIPTION)

        assert cache is not None
        own = cache.folder.parent
        assert {each.name for each in parent.iterdir()} == {"live", "foreign", "file", own.name}
        assert stat.S_IMODE(own.stat().st_mode) == 0o750


async def test_caches_share_one_folder(tmp_path: Path) -> None:
    """Each cache has a folder in that of its process, which ends with its run."""
    caches = SharedCaches(tmp_path / "cache")
    first, second = caches.new("customers", DESCRIPTION), caches.new("customers", DESCRIPTION)
    assert first is not None
    assert second is not None
    assert first.folder.parent == second.folder.parent
    for each in (first, second):
        caches.add(each, RowCache(KIND.schema, SETTINGS, each))
    shared = [MappedCache(each.folder) for each in (first, second)]

    async with running(caches):
        leases = [each.has_lease for each in shared]
        caches.remove(first)
        leases.append(shared[0].has_lease)

    assert leases == [True, True, False]
    assert not shared[1].has_lease
    assert [*(tmp_path / "cache").iterdir()] == []


@pytest.mark.parametrize("gone", ["1/map", "lock", "1/lease", "1", "."])
async def test_end_tolerates_files_that_are_gone(tmp_path: Path, gone: str) -> None:
    """The end of the process removes what is there, whatever another process has removed."""
    caches = SharedCaches(tmp_path / "cache")
    memory = caches.new("customers", DESCRIPTION)
    assert memory is not None
    cache = RowCache(KIND.schema, SETTINGS, memory)
    caches.add(memory, cache)
    fill(cache, 1)
    lost = memory.folder.parent / gone
    if lost.is_dir():
        shutil.rmtree(lost)
    else:
        lost.unlink()

    async with running(caches):
        pass
    caches.remove(memory)

    assert [*(tmp_path / "cache").iterdir()] == []


def _remove_rows(memory: SharedMemory) -> None:
    next(memory.folder.glob("rows-*")).unlink()


def _remove_lease(memory: SharedMemory) -> None:
    (memory.folder / "lease").unlink()


def _remove_folder(memory: SharedMemory) -> None:
    shutil.rmtree(memory.folder.parent)


def _remove_all(memory: SharedMemory) -> None:
    shutil.rmtree(memory.folder.parents[1])


def _replace_folder(memory: SharedMemory) -> None:
    former = memory.folder.rename(memory.folder.with_name("former"))
    shutil.copytree(former, memory.folder)


def _fill_up(memory: SharedMemory) -> None:
    with largest_file(SMALL_BYTES):
        memory.zeros(SMALL_BYTES, np.uint64)


@pytest.mark.parametrize(
    "lose",
    [_remove_rows, _remove_lease, _remove_folder, _remove_all, _replace_folder, _fill_up],
)
async def test_lost_files_are_shared_again(
    tmp_path: Path, lose: Callable[[SharedMemory], None]
) -> None:
    """Lost files and a full file system end sharing with a log line, and it begins again."""
    caches = SharedCaches(tmp_path / "cache")
    memory = caches.new("customers", DESCRIPTION)
    assert memory is not None
    cache = RowCache(KIND.schema, SETTINGS, memory)
    caches.add(memory, cache)
    fill(cache, *range(1_000), now=boot_time())
    former = MappedCache(memory.folder)
    memory.extend_lease()

    with structlog.testing.capture_logs() as logs:
        lose(memory)
        async with running(caches):
            await until(lambda: memory.is_shared_now and memory.folder != former._folder)
            assert not former.has_lease
            again = MappedCache(memory.folder)
            await until(lambda: again.has_lease)
            fill(cache, 1_000, now=boot_time())
            cache.invalidate(KIND.keys([7]))
            assert read(again, 6, 7, 999, 1_000, now=boot_time()) == [6, 999, 1_000]

    assert [each["event"] for each in logs] == ["cache.sharing_ended", "cache.shared_again"]
    assert [*tmp_path.glob("cache/*")] == []  # noqa: ASYNC240  nothing waits for it


async def test_cache_is_shared_once_it_can_be(tmp_path: Path) -> None:
    """A cache that cannot be shared at the start is shared once its folder can be made."""
    (tmp_path / "cache").touch()
    caches = SharedCaches(tmp_path / "cache")
    memory = caches.new("customers", DESCRIPTION)
    assert memory is not None
    cache = RowCache(KIND.schema, SETTINGS, memory)
    caches.add(memory, cache)
    fill(cache, 1, now=boot_time())

    async with running(caches):
        assert not memory.is_shared_now
        (tmp_path / "cache").unlink()
        await until(lambda: memory.is_shared_now)
        memory.extend_lease()
        found = read(MappedCache(memory.folder), 1, now=boot_time())

    assert found == [1]


def test_rows_may_change_while_they_move(tmp_path: Path, clock: HandClock) -> None:
    """Between two steps of a move, rows come, go and are merged; readers see the last ones."""
    memory = SharedMemory("customers", tmp_path / "1", DESCRIPTION, clock=clock)
    cache = RowCache(KIND.schema, SETTINGS, memory)
    for first in range(0, 600, 100):
        fill(cache, *range(first, first + 100))
    memory.end(OSError(errno.ENOSPC, "full"))
    fill(cache, *range(600, 700))

    memory.restart(tmp_path / "2")
    cache.begin_move()
    steps = [cache.move_next()]
    fill(cache, *range(700, 800))
    cache.invalidate(KIND.keys(range(0, 700, 2)))
    while steps[-1]:
        steps.append(cache.move_next())
        cache.check_invariants()
    memory.end_move()
    cache.end_move()
    memory.extend_lease()

    found = read(MappedCache(tmp_path / "2", clock=clock), *range(800))
    assert found == [*range(1, 700, 2), *range(700, 800)]
    assert not (tmp_path / "1").exists()


def test_full_table_moves_as_a_whole(tmp_path: Path, clock: HandClock) -> None:
    """Readers of a full table that moves know all of its rows or none, also those of a reload."""
    settings = CacheSettings(mode=CacheMode.FULL)
    description = CacheDescription(KIND.schema, 0, settings)
    memory = SharedMemory("customers", tmp_path / "1", description, clock=clock)
    table = FullTable(KIND.schema, settings, memory)

    def read_into(reload: Reload, numbers: range) -> None:
        reload.add(KIND.keys(numbers), KIND.rows(numbers), np.ones(len(numbers), np.bool_))

    first = table.begin_reload(100.0)
    read_into(first, range(100))
    assert table.finish_reload(first, unseen=np.zeros(0, np.uint64))
    memory.end(OSError(errno.ENOSPC, "full"))
    second = table.begin_reload(100.0)
    read_into(second, range(1_000))

    memory.restart(tmp_path / "2")
    table.begin_move()
    while table.move_next():
        table.check_invariants()
    memory.end_move()
    table.end_move()
    memory.extend_lease()
    shared = MappedCache(tmp_path / "2", clock=clock)
    found = [read(shared, *range(1_001))]
    assert table.finish_reload(second, unseen=np.zeros(0, np.uint64))
    found.append(read(shared, *range(1_001)))

    reader = shared.reader()
    assert reader is not None
    missing = reader.read(KIND.keys([999, 1_000]), ["position"], 100.0).missing
    assert found == [[*range(100)], [*range(1_000)]]
    assert missing.positions.tolist() == [1]


async def test_drain_ends_all_leases(tmp_path: Path) -> None:
    """While the sidecar drains, no reader begins to use a cache."""
    caches = SharedCaches(tmp_path / "cache")
    cache = caches.new("customers", DESCRIPTION)
    assert cache is not None
    caches.add(cache, RowCache(KIND.schema, SETTINGS, cache))
    shared = MappedCache(cache.folder)
    cache.extend_lease()

    caches.drain()
    assert not shared.has_lease

    async with running(caches):
        has_lease = shared.has_lease

    assert not has_lease


def _make_file(folder: Path) -> None:
    folder.touch()


def _make_link(folder: Path) -> None:
    elsewhere = folder.with_name("elsewhere")
    elsewhere.mkdir()
    folder.symlink_to(elsewhere)


def _make_open(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o770)  # past the umask


@pytest.mark.parametrize("make", [_make_file, _make_link, _make_open])
def test_unsafe_folder_leaves_caches_private(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """Where no folder can be made, or others may add files, nothing is shared, for a reason."""
    make(tmp_path / "cache")
    caches = SharedCaches(tmp_path / "cache")

    with structlog.testing.capture_logs() as logs:
        memory = caches.new("customers", DESCRIPTION)

    assert [each["event"] for each in logs] == ["cache.not_shared"]
    assert memory is not None
    assert "cache" in (memory.why_private or "")
    fill(RowCache(KIND.schema, SETTINGS, memory), 1)
    assert memory.file_bytes == 0


def test_clients_may_see_the_folder_elsewhere(tmp_path: Path) -> None:
    """A folder next to the socket is named relative to it; another one has its whole path."""
    with TemporaryDirectory(prefix="sidelook-", dir="/dev/shm") as name:
        near, far = SharedCaches.for_socket(Path(name) / "s.sock"), SharedCaches(tmp_path / "cache")
        caches = [each.new("customers", DESCRIPTION) for each in (near, far)]
        assert caches[0] is not None
        assert caches[1] is not None

        assert Path(name) / near.offered(caches[0]) == caches[0].folder
        assert not Path(near.offered(caches[0])).is_absolute()
        assert far.offered(caches[1]) == str(caches[1].folder)
