"""A collector of spans by OTLP over HTTP on loopback, in a thread."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span


@dataclass(slots=True)
class OtlpCollector:
    """The received messages."""

    url: str
    messages: list[ExportTraceServiceRequest] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)  # of each message

    def spans(self) -> list[Span]:
        """All spans, in the order in which they ended at each sender."""
        return [
            span
            for message in tuple(self.messages)
            for resource in message.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def resource(self) -> dict[str, object]:
        """The resource attributes of the first message."""
        return attributes(self.messages[0].resource_spans[0].resource.attributes)


def attributes(of: "list[KeyValue]") -> dict[str, object]:
    """Attributes by name."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value") or "") for each in of}


@contextmanager
def otlp_collector() -> Iterator[OtlpCollector]:
    """A collector that runs during the block."""

    class Taker(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            is_ours = self.path == "/v1/traces"
            if is_ours:
                message = ExportTraceServiceRequest()
                message.ParseFromString(body)
                collector.messages.append(message)
                collector.tokens.append(self.headers.get("authorization", ""))
            self.send_response(200 if is_ours else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_arguments: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Taker) as server:
        server.daemon_threads = True
        collector = OtlpCollector(f"http://127.0.0.1:{server.server_port}")
        serving = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        serving.start()
        try:
            yield collector
        finally:
            server.shutdown()
            serving.join()
