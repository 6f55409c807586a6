"""Picture `architecture`: the processes of one machine, and what flows between them."""

from tools.pictures.canvas import BOLD, SMALL, WIDTH, Box, Canvas
from tools.pictures.palette import Palette

_HEIGHT = 886
_EXECUTOR = Box(1, 1, 364, 142)
_TASKS, _WORKERS = Box(14, 36, 92, 92), Box(142, 36, 210, 92)
_HTTP_CLIENTS, _PROMETHEUS = Box(416, 1, 143, 62), Box(416, 81, 143, 62)
_MEMORY = Box(1, 190, 190, 82)
_SIDECAR = Box(1, 322, WIDTH - 2, 430)
_STREAM, _HTTP = Box(196, 338, 169, 78), Box(379, 338, 168, 78)
_DIMENSION = Box(14, 444, 351, 232)
_STEPS = (  # the way of a key that is not cached
    ("Cache", "rows, negative entries"),
    ("Single flight", "each key once"),
    ("Batch", "keys of all channels"),
    ("Breaker", "slots, retry budget"),
)
_STEP_HEIGHT, _STEP_GAP = 34, 16
_FEED = Box(403, 502, 144, 90)
_POOL = Box(14, 694, 351, 44)
_DATABASE, _KAFKA = Box(14, 822, 351, 62), Box(403, 822, 144, 62)
_DOWN, _UP = 256, 304  # x of the arrows along the Unix socket
_WRITES = 178  # x of the arrow from cache to shared memory
_HTTP_LANE = 391  # x between executor and Prometheus


def draw(palette: Palette) -> str:
    """The picture as SVG."""
    canvas = Canvas(palette)
    canvas.box(_SIDECAR, palette.plain)  # below the arrows into it
    _draw_executor(canvas)
    _draw_http_clients(canvas)
    _draw_sidecar(canvas)
    _draw_dimension(canvas)
    _draw_database(canvas)
    return canvas.svg(
        _HEIGHT,
        title="Architecture of Sidelook",
        description=(
            "A sidecar runs next to each Spark executor. Python workers read cached rows in shared"
            " memory and send the other keys over a Unix socket. Each dimension has a cache,"
            " single flight, batches and a circuit breaker. One pool of connections leads to"
            " PostgreSQL. A change feed, by triggers or Kafka, drops changed rows from the cache."
            " HTTP clients and Prometheus use the HTTP listeners."
        ),
    )


def _draw_executor(canvas: Canvas) -> None:
    palette = canvas.palette
    canvas.box(_EXECUTOR, palette.plain)
    canvas.text((14, 24), "Spark executor", font=BOLD, anchor="start")
    canvas.labelled_box(_TASKS, ["Tasks", "JVM"], palette.inner)
    lines = ["Python workers", "distinct keys, output", "order, watermarks"]
    canvas.labelled_box(_WORKERS, lines, palette.blue)
    y = _TASKS.middle[1]
    canvas.arrow([(_TASKS.right + 3, y), (_WORKERS.x - 3, y)], is_double=True)
    lines = ["Shared memory", "cached rows, which", "workers only read"]
    canvas.labelled_box(_MEMORY, lines, palette.green)
    hits = palette.green.stroke
    canvas.arrow([(162, _MEMORY.y), (162, _WORKERS.bottom + 2)], colour=hits)
    canvas.text((154, 172), "hits, no message", font=SMALL, anchor="end")
    canvas.arrow([(_DOWN, _WORKERS.bottom), (_DOWN, _STREAM.y - 2)], colour=palette.blue.stroke)
    canvas.arrow([(_UP, _STREAM.y), (_UP, _WORKERS.bottom + 2)], colour=palette.blue.stroke)
    canvas.text((_DOWN - 8, 172), "LOOKUP", font=SMALL, anchor="end")
    canvas.text((_UP + 8, 172), "RESULT", font=SMALL, anchor="start")
    socket = Box((_DOWN + _UP) / 2 - 54, 216, 108, 30)
    canvas.labelled_box(socket, ["Unix socket"], palette.blue, has_title=False)


def _draw_http_clients(canvas: Canvas) -> None:
    palette = canvas.palette
    canvas.labelled_box(_HTTP_CLIENTS, ["HTTP clients", "services, curl"], palette.plain)
    canvas.labelled_box(_PROMETHEUS, ["Prometheus", "alerts, dashboard"], palette.plain)
    y = _HTTP_CLIENTS.middle[1]
    canvas.arrow([(_HTTP_CLIENTS.x, y), (_HTTP_LANE, y), (_HTTP_LANE, _HTTP.y - 2)])
    x = _PROMETHEUS.middle[0]
    canvas.arrow([(x, _PROMETHEUS.bottom), (x, _HTTP.y - 2)])
    canvas.text((x - 8, 236), "scrapes", font=SMALL, anchor="end")


def _draw_sidecar(canvas: Canvas) -> None:
    palette = canvas.palette
    canvas.text((14, 346), "Sidecar", font=BOLD, anchor="start")
    canvas.labelled_box(_STREAM, ["Stream", "channels, credit,", "fair turns"], palette.inner)
    canvas.labelled_box(_HTTP, ["HTTP", "lookups, metrics,", "status page"], palette.inner)
    lines = ["Change feed", "drops changed", "rows; fence"]
    canvas.labelled_box(_FEED, lines, palette.orange)
    lines = ["Connection pool, one per database"]
    canvas.labelled_box(_POOL, lines, palette.inner)


def _draw_dimension(canvas: Canvas) -> None:
    palette = canvas.palette
    canvas.box(_DIMENSION, palette.inner)
    canvas.text((28, _DIMENSION.y + 22), "Dimension state", font=BOLD, anchor="start")
    at = _DIMENSION.right - 12, _DIMENSION.y + 22
    canvas.text(at, "one per dimension", font=SMALL, anchor="end", fill=palette.muted)
    y = _DIMENSION.y + 34
    for number, (name, about) in enumerate(_STEPS):
        box = Box(_DIMENSION.x + 12, y, _DIMENSION.width - 24, _STEP_HEIGHT)
        tint = palette.green if number == 0 else palette.plain
        canvas.box(box, tint)
        canvas.text((box.x + 12, y + 22), name, font=BOLD, anchor="start", fill=tint.text)
        canvas.text((box.x + 136, y + 22), about, font=SMALL, anchor="start", fill=tint.text)
        if number:
            canvas.arrow([(box.x + 60, y - _STEP_GAP), (box.x + 60, y - 1)])
        y += _STEP_HEIGHT + _STEP_GAP
    top, cache_y = _DIMENSION.y, _DIMENSION.y + 34 + _STEP_HEIGHT / 2
    x = _STREAM.middle[0]
    canvas.arrow([(x, _STREAM.bottom), (x, top - 2)], is_double=True)
    x = _HTTP.middle[0] - 40
    canvas.arrow([(x, _HTTP.bottom), (x, cache_y), (_DIMENSION.right + 2, cache_y)])
    feed_y = _FEED.middle[1]
    end = _DIMENSION.right + 2, feed_y
    canvas.arrow([(_FEED.x, feed_y), end], colour=palette.orange.stroke)
    start = _WRITES, top + 34
    canvas.arrow([start, (_WRITES, _MEMORY.bottom + 2)], colour=palette.green.stroke)
    canvas.text((_WRITES - 8, 304), "writes", font=SMALL, anchor="end")
    canvas.arrow([(86, _DIMENSION.bottom), (86, _POOL.y - 1)])


def _draw_database(canvas: Canvas) -> None:
    palette = canvas.palette
    canvas.labelled_box(_DATABASE, ["PostgreSQL", "dimension tables"], palette.plain)
    canvas.labelled_box(_KAFKA, ["Kafka", "Debezium"], palette.plain)
    canvas.arrow([(86, _POOL.bottom + 2), (86, _DATABASE.y - 2)], is_double=True)
    canvas.text((96, 795), "one query for many keys", font=SMALL, anchor="start")
    changes = palette.orange.stroke
    x, y = 344.0, 784.0
    up = _FEED.x + 32
    points = [(x, _DATABASE.y), (x, y), (up, y), (up, _FEED.bottom + 2)]
    canvas.arrow(points, colour=changes)
    canvas.text((x + 8, y - 7), "NOTIFY", font=SMALL, anchor="start")
    up = _FEED.right - 32
    canvas.arrow([(up, _KAFKA.y), (up, _FEED.bottom + 2)], colour=changes)
    y = _KAFKA.middle[1]
    canvas.arrow([(_DATABASE.right, y), (_KAFKA.x - 2, y)], colour=changes)
