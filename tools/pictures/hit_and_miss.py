"""Picture `hit-and-miss`: the way of a cached key, and of keys that must be fetched.

The dimension state of `lookup_core` decides which keys join a flight, and which are one query.
"""

from collections.abc import Iterable

from tools.pictures.canvas import Canvas
from tools.pictures.dimension_run import DimensionRun
from tools.pictures.palette import Palette
from tools.pictures.sequence import SequenceDiagram

NAMES = {7: "Ada", 8: "Bea", 9: "Cem", 10: "Dan"}
CACHED, FIRST, SECOND = 7, (8, 9), (9, 10)  # keys: in the cache, and of two tasks
_SNAPSHOT = "104:104:"
_WORKERS, _MEMORY, _SIDECAR, _DATABASE = (
    "Python\nworkers",
    "Shared\nmemory",
    "Sidecar",
    "PostgreSQL",
)
_LIFELINES = {_WORKERS: 48, _MEMORY: 192, _SIDECAR: 344, _DATABASE: 496}


def draw(palette: Palette) -> str:
    """The picture as SVG."""
    canvas = Canvas(palette)
    diagram = SequenceDiagram(canvas, _LIFELINES)
    run = DimensionRun()
    _fill(run)
    _draw_hit(diagram, palette, run)
    _draw_miss(diagram, palette, run)
    return canvas.svg(
        diagram.finish() + 4,
        title="The way of a hit and of a miss",
        description=(
            "Hit: a Python worker reads the row in shared memory and sends no message. Miss: the"
            " worker sends LOOKUP over the Unix socket. The sidecar probes its cache, keys of"
            " several lookups join one flight, and one query fetches the batch. The rows go into"
            " shared memory and into the RESULT of each lookup."
        ),
    )


def _draw_hit(diagram: SequenceDiagram, palette: Palette, run: DimensionRun) -> None:
    word = run.look_up(CACHED)[CACHED]
    diagram.section("Hit: no message to the sidecar", palette.green)
    diagram.message((_WORKERS, _MEMORY), [f"look up {CACHED}"])
    diagram.message((_MEMORY, _WORKERS), [word], is_dashed=True)


def _draw_miss(diagram: SequenceDiagram, palette: Palette, run: DimensionRun) -> None:
    assert run.look_up(*FIRST) == run.look_up(*SECOND) == {}
    order = run.send()
    assert order is not None
    query, keys = order
    (joined,) = set(FIRST) & set(SECOND)
    assert run.coalesced_keys == 1
    diagram.section("Miss: one query for the keys of all tasks", palette.blue)
    diagram.message((_WORKERS, _MEMORY), [f"look up {_listed(FIRST)}"])
    diagram.message((_MEMORY, _WORKERS), ["no rows"], is_dashed=True)
    diagram.message((_WORKERS, _SIDECAR), [f"task 1: LOOKUP {_listed(FIRST)} (Unix socket)"])
    diagram.message((_WORKERS, _SIDECAR), [f"task 2: LOOKUP {_listed(SECOND)}"])
    for line in (
        "cache: no rows",
        f"single flight: key {joined} is fetched once",
        f"batch: {_listed(keys)}",
    ):
        diagram.note((_SIDECAR, _SIDECAR), [line], palette.plain, width=284)
    diagram.message((_SIDECAR, _DATABASE), ["one query:", _listed(keys)])
    diagram.message((_DATABASE, _SIDECAR), [f"{len(keys)} rows"], is_dashed=True)
    answers = run.land(query, NAMES, _SNAPSHOT)
    assert run.cached_rows == len(NAMES)
    diagram.message((_SIDECAR, _MEMORY), ["rows into cache"])
    for task, words in enumerate(answers, 1):
        (outcome,) = {word.split()[0] for word in words.values()}
        text = f"task {task}: RESULT {_listed(sorted(words))}, {outcome}"
        diagram.message((_SIDECAR, _WORKERS), [text], is_dashed=True)
    assert all(word.startswith("hit") for word in run.look_up(*keys).values())
    diagram.section(f"From now on, {_listed(keys)} are hits", palette.green)


def _fill(run: DimensionRun) -> None:
    """Put one row into the cache."""
    run.look_up(CACHED)
    order = run.send()
    assert order is not None
    run.land(order[0], NAMES, _SNAPSHOT)


def _listed(keys: Iterable[int]) -> str:
    return ", ".join(map(str, keys))
