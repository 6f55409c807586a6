"""Picture `freshness`: a read that is older than an UPDATE does not reach the cache.

The dimension state of `lookup_core` runs the scenario; the picture shows its decisions.
"""

from collections.abc import Callable, Iterator

from tools.pictures.canvas import Canvas
from tools.pictures.dimension_run import DimensionRun
from tools.pictures.palette import Palette
from tools.pictures.sequence import SequenceDiagram

KEY, OLD, NEW, TRANSACTION = 7, "Ada", "Eva", 103
BEFORE, AFTER = "103:104:103", "104:104:"  # what the two reads see, as PostgreSQL writes it
_TASK, _SIDECAR, _DATABASE = "Spark task", "Sidecar", "PostgreSQL"
_LIFELINES = {_TASK: 62, _SIDECAR: 256, _DATABASE: 447}
_IN, _OUT = (_TASK, _SIDECAR), (_SIDECAR, _TASK)
_QUERY, _ROWS = (_SIDECAR, _DATABASE), (_DATABASE, _SIDECAR)


def draw(palette: Palette) -> str:
    """The picture as SVG."""
    canvas = Canvas(palette)
    diagram = SequenceDiagram(canvas, _LIFELINES)
    for step in _steps(diagram, palette):
        step()
    return canvas.svg(
        diagram.finish() + 4,
        title="An UPDATE while an older read is in flight",
        description=(
            f"Query 1 reads {OLD}. An UPDATE to {NEW} commits, and its event reaches the sidecar"
            f" before the rows of query 1. Their lookup gets {OLD}, but the cache does not. The"
            f" next lookup sends query 2, and {NEW} is cached."
        ),
    )


def _steps(diagram: SequenceDiagram, palette: Palette) -> Iterator[Callable[[], None]]:
    """Drive the dimension; yields what to draw, in the order of the events."""
    run = DimensionRun()

    def message(ends: tuple[str, str], text: str) -> Callable[[], None]:
        is_answer = ends in {_OUT, _ROWS}
        return lambda: diagram.message(ends, [text], is_dashed=is_answer)

    def result(lookup: int, word: str) -> Callable[[], None]:
        return message(_OUT, f"RESULT {lookup}: {word}")

    def verdict(name: str) -> Callable[[], None]:
        is_cached = run.cached_rows == 1
        tint = palette.green if is_cached else palette.red
        text = f"{name} is {'cached' if is_cached else 'not cached'}"
        return lambda: diagram.note((_SIDECAR, _SIDECAR), [text], tint, width=170)

    def database(*lines: str) -> Callable[[], None]:
        return lambda: diagram.note((_DATABASE, _DATABASE), lines, palette.orange, width=222)

    yield message(_IN, f"LOOKUP 1: key {KEY}")
    older = _sent_query(run)
    yield message(_QUERY, f"query 1: key {KEY}")
    yield lambda: diagram.note(
        (_DATABASE, _DATABASE), [f"query 1 reads {OLD}"], palette.plain, width=222
    )
    yield database(f"UPDATE {OLD} to {NEW},", f"COMMIT of transaction {TRANSACTION}")
    run.change(KEY, TRANSACTION)
    yield lambda: diagram.message(_ROWS, [f"change event: key {KEY}"], tint=palette.orange)
    fence = f"fence: reads without {TRANSACTION}", f"do not fill key {KEY}"
    yield lambda: diagram.note((_SIDECAR, _SIDECAR), fence, palette.violet, width=214)
    yield message(_ROWS, f"rows of query 1: {OLD}")
    (late,) = run.land(older, {KEY: OLD}, BEFORE)
    yield verdict(OLD)
    yield result(1, late[KEY])
    yield message(_IN, f"LOOKUP 2: key {KEY}")
    newer = _sent_query(run)
    yield message(_QUERY, f"query 2: key {KEY}")
    yield message(_ROWS, f"rows of query 2: {NEW}")
    (fresh,) = run.land(newer, {KEY: NEW}, AFTER)
    yield verdict(NEW)
    yield result(2, fresh[KEY])
    yield message(_IN, f"LOOKUP 3: key {KEY}")
    yield result(3, run.look_up(KEY)[KEY])


def _sent_query(run: DimensionRun) -> int:
    """Start a lookup that the cache cannot answer; the number of its query."""
    assert run.look_up(KEY) == {}
    order = run.send()
    assert order is not None
    return order[0]
