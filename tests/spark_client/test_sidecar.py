"""The public way in: what its arguments become, and which of them are refused."""

import pickle
from typing import Any

import pytest

from lookup_core.protocol.trace_parent import TraceParent
from spark_client import Sidecar
from spark_client.lookup_join import EventTime, LookupJoin
from spark_client.lookup_settings import FailurePolicy, JoinKeys, LookupSettings, OutputMode
from spark_client.transport.connections import Address
from spark_client.transport.endpoint import ClientTls

TRACEPARENT = f"00-{'a' * 32}-{'b' * 16}-01"
URL = "unix:///run/sidelook/sidelook.sock"


def test_defaults_are_those_of_the_documentation() -> None:
    """A lookup join with nothing but its key."""
    join = Sidecar(URL).lookup_join("customers", on="customer_id")

    assert join == LookupJoin(
        address=Address(URL, None, 60.0),
        dimension="customers",
        keys=JoinKeys(("customer_id",), ("customer_id",)),
        columns=None,
        schema=None,
        prefix="",
        status_column=None,
        event_time=None,
        as_of=None,
        settings=LookupSettings(OutputMode.ORDERED, 20_000, timeout_s=5.0),
    )


def test_options_are_carried_over() -> None:
    """Every option of the call ends where it is needed, in numbers."""
    join = Sidecar("http://127.0.0.1:8815", token_file="/t", connect_timeout=1.5).lookup_join(
        "d",
        on={"a": "b"},
        columns=["x"],
        how="inner",
        mode="unordered",
        capacity=7,
        timeout=0.5,
        on_timeout="null",
        on_error="null",
        event_time="ts",
        as_of="at",
        watermark_delay="10 seconds",
        watermark_interval="1 minute",
        prefix="p_",
        status_column="_s",
        schema="x string",
        traceparent=TRACEPARENT,
    )

    assert join == LookupJoin(
        address=Address("http://127.0.0.1:8815", "/t", 1.5),
        dimension="d",
        keys=JoinKeys(("a",), ("b",), are_exact=True),
        columns=("x",),
        schema="x string",
        prefix="p_",
        status_column="_s",
        event_time=EventTime("ts", 10_000, 60_000),
        as_of="at",
        settings=LookupSettings(
            OutputMode.UNORDERED,
            7,
            timeout_s=0.5,
            on_timeout=FailurePolicy.NULL,
            on_error=FailurePolicy.NULL,
            is_inner=True,
            trace=TraceParent(TRACEPARENT),
        ),
    )


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"mode": "sorted"}, "mode must be ordered or unordered or key_ordered, not 'sorted'"),
        ({"how": "outer"}, "how must be left or inner"),
        ({"on_timeout": "ignore"}, "on_timeout must be fail or null"),
        ({"on_error": ""}, "on_error must be fail or null"),
        ({"columns": "name"}, r"write \['name'\]"),
        ({"capacity": 0}, "capacity"),
        ({"timeout": 0}, "timeout"),
        ({"watermark_delay": "1 s"}, "need event_time"),
        ({"watermark_interval": "1 s"}, "need event_time"),
        ({"event_time": "t", "watermark_delay": "soon"}, "no duration"),
        ({"event_time": "t", "watermark_interval": "0 ms"}, "at least 1 millisecond"),
        ({"on": []}, "at least one column"),
        ({"traceparent": "00-1-2-01"}, "traceparent is 00-"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], text: str) -> None:
    """What cannot be carried out is an error where it is written, not in a task."""
    with pytest.raises(ValueError, match=text):
        Sidecar(URL).lookup_join("d", **{"on": "k", **options})


@pytest.mark.parametrize("partitions", [0, 4097, True, 2.0, "8"])
def test_partitions_without_groups_are_refused(partitions: Any) -> None:  # noqa: ANN401 -- also wrong ones
    """The number is a whole one; every partition has a key group at least, and there is one."""
    with pytest.raises(ValueError, match=f"a number from 1 to 4096, not {partitions!r}"):
        Sidecar(URL).repartition_for("d", partitions=partitions)


def test_event_time_alone_has_no_delay() -> None:
    """Without a delay the watermark follows the largest event time."""
    join = Sidecar(URL).lookup_join("d", on="k", event_time="t")

    assert join.event_time == EventTime("t", 0, None)


def test_wrong_endpoints_are_refused() -> None:
    """A URL that is none, or no time to connect, is refused before anything is sent anywhere."""
    with pytest.raises(ValueError, match="neither unix"):
        Sidecar("/run/sidelook.sock")
    with pytest.raises(ValueError, match="connect_timeout"):
        Sidecar(URL, connect_timeout=0)


def test_functions_need_a_column() -> None:
    """A struct without fields is of no use."""
    with pytest.raises(ValueError, match="at least one column"):
        Sidecar(URL).lookup_udf("d", columns=[])


def test_everything_travels_by_value() -> None:
    """A sidecar and a join are plain values, so that they can be sent to a Connect server."""
    sidecar = Sidecar(URL)
    join = sidecar.lookup_join("d", on="k")

    assert pickle.loads(pickle.dumps(sidecar)) == sidecar  # noqa: S301 -- our own bytes
    assert pickle.loads(pickle.dumps(join)) == join  # noqa: S301 -- our own bytes


def test_files_of_tls_are_carried_over() -> None:
    """By name, so that tasks read them where they run."""
    sidecar = Sidecar("https://h:1", ca_file="ca", cert_file="crt", key_file="key")

    assert sidecar.lookup_join("d", on="a").address.tls == ClientTls("ca", "crt", "key")


@pytest.mark.parametrize("url", [URL, "http://h:1"])
def test_files_of_tls_need_https(url: str) -> None:
    """What would have no effect is refused."""
    with pytest.raises(ValueError, match="need a url with https://"):
        Sidecar(url, ca_file="ca")


@pytest.mark.parametrize("files", [{"cert_file": "crt"}, {"key_file": "key"}])
def test_certificate_and_key_go_together(files: dict[str, str]) -> None:
    """One without the other is a slip."""
    with pytest.raises(ValueError, match="both or none of cert_file and key_file"):
        Sidecar("https://h:1", **files)  # type: ignore[arg-type]  # of options that are text
