"""A session of HTTP whose answers are short and whole in time, whatever the collector sends.

They lead nowhere else, and ask for no hot loop. Knows nothing of spans. The library that
`span_export` gives it to reads an answer to its end.
"""

import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from io import BytesIO
from typing import Any
from weakref import ref

import requests
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase
from urllib3.exceptions import HTTPError, InvalidHeader
from urllib3.util import Retry

LEAST_RETRY_AFTER_S = 1.0  # as long as the library's own first wait
MOST_ANSWER_BYTES = 4096  # nobody reads more than its status and headers
_AGAIN_S = 0.1  # a connection may be made at the very moment of the cut


class FreshHeaders(AuthBase):
    """Puts the headers on each request as they are then, so that a secret may be rotated."""

    def __init__(self, read: Callable[[], Mapping[str, str]]) -> None:
        self._read = read

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """The same request; raises what reading them raises, which costs this batch."""
        request.headers.update(self._read())
        return request


def collector_session(headers: Callable[[], Mapping[str, str]]) -> requests.Session:
    """For one thread at a time. A request's timeout is the time that all of it may take.

    A redirect raises RequestException; a Retry-After that is too soon, or unreadable, is dropped.
    """
    session = requests.Session()
    session.auth = FreshHeaders(headers)
    session.hooks["response"] += [_refuse_redirect, _drop_hasty_retry]
    for scheme in ("http://", "https://"):
        session.mount(scheme, _BoundedAdapter())
    return session


def _refuse_redirect(response: requests.Response, **_options: object) -> None:
    # The library would not follow it, and would take it for a success.
    status = response.status_code
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        raise requests.RequestException(
            f"HTTP {status} {response.reason}: redirects are not followed", response=response
        )


def _drop_hasty_retry(response: requests.Response, **_options: object) -> None:
    told = response.headers.pop("Retry-After", None)
    wait_s = 0.0 if told is None else _seconds(told)
    if wait_s >= LEAST_RETRY_AFTER_S:
        response.headers["Retry-After"] = f"{wait_s:.3f}"  # of a date, too: nobody reads it again


def _seconds(retry_after: str) -> float:
    try:
        return Retry().parse_retry_after(retry_after)
    except (InvalidHeader, ValueError, OverflowError):
        return 0.0


class _BoundedAdapter(HTTPAdapter):
    """Cuts its connections when the time of a request is over: a timeout is for each read alone."""

    def __init__(self) -> None:
        super().__init__()
        self._connections: list[ref[Any]] = []  # that urllib3 has made; it keeps and reopens them

    def get_connection_with_tls_context(self, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 -- the library's signature
        """The pool; it tells of each connection that it makes."""
        pool = super().get_connection_with_tls_context(*arguments, **named)
        if not isinstance(pool.ConnectionCls, partial):
            # In urllib3 it is only ever called.
            pool.ConnectionCls = partial(self._made, pool.ConnectionCls)  # type: ignore[assignment]
        return pool

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:  # type: ignore[override]  # noqa: ANN401 -- as the library passes them on
        """The answer with its first bytes; raises Timeout, or what a lost connection raises."""
        with self._cut_after(options["timeout"]):
            response = super().send(request, **{**options, "stream": True})
            try:
                start = response.raw.read(MOST_ANSWER_BYTES, decode_content=False)
            except HTTPError as error:  # which is no RequestException, unlike what `send` raises
                raise requests.exceptions.ChunkedEncodingError(error, request=request) from error
            response.close()  # and its connection, if there is more
        response.raw = BytesIO(start)
        return response

    def _made(self, kind: Callable[..., Any], **settings: Any) -> Any:  # noqa: ANN401 -- as above
        connection = kind(**settings)
        kept = [each for each in self._connections if each() is not None]
        self._connections = [*kept, ref(connection)]  # at once: another thread reads it
        return connection

    @contextmanager
    def _cut_after(self, seconds: float) -> Iterator[None]:
        is_over, is_late = threading.Event(), threading.Event()
        cutting = threading.Thread(
            target=self._cut_until,
            args=(is_over, is_late, seconds),
            name="tracing-deadline",
            daemon=True,
        )
        cutting.start()
        try:
            yield
        finally:
            is_over.set()
            cutting.join()
        if is_late.is_set():  # a body that was cut reads like a short one
            raise requests.Timeout(f"no whole answer within {seconds:.1f} s")

    def _cut_until(
        self, is_over: threading.Event, is_late: threading.Event, seconds: float
    ) -> None:
        wait_s = seconds
        while not is_over.wait(wait_s):
            is_late.set()
            wait_s = _AGAIN_S
            for connection in self._connections:
                _cut(getattr(connection(), "sock", None))


def _cut(connected: socket.socket | None) -> None:
    if connected is None:
        return
    try:
        # Not TLS's own, which takes apart what the other thread reads from.
        socket.socket.shutdown(connected, socket.SHUT_RDWR)
    except OSError:
        return  # it is no longer connected, or not yet
