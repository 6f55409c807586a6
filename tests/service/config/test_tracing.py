"""Where spans go, and which settings of it are refused."""

import stat
from pathlib import Path

import pytest

from service.config.settings import Settings
from service.config.tracing import Tracing, parse_headers
from tests.service.config.configuration import MINIMAL, faults

ENDPOINT = "http://127.0.0.1:4318"


def test_nothing_is_traced_unless_asked_for() -> None:
    """Without an endpoint it is off."""
    assert Tracing().model_dump() == {
        "endpoint": None,
        "sample_ratio": 0.01,
        "service_name": "sidelook",
        "headers_file": None,
        "ca_file": None,
    }


def test_endpoint_is_where_a_collector_listens() -> None:
    """A slash at its end means nothing; the share may come from the environment as text."""
    values = {"tracing": {"endpoint": ENDPOINT + "/", "sample_ratio": "0.5"}}

    tracing = Settings(values, MINIMAL).tracing

    assert (tracing.endpoint, tracing.sample_ratio) == (ENDPOINT, 0.5)


@pytest.mark.parametrize(
    "endpoint", ["127.0.0.1:4318", "grpc://c:4317", "http://", "http://c:port", f"{ENDPOINT}/?a=1"]
)
def test_other_addresses_are_refused(endpoint: str) -> None:
    """OTLP over HTTP needs the address of somebody who speaks HTTP."""
    assert faults({"tracing": {"endpoint": endpoint}}) == [
        "tracing.endpoint: is not http://host:port or https://host:port of a collector"
    ]


def test_secret_in_the_endpoint_is_refused() -> None:
    """It has a file of its own, as all secrets have; the fault does not show it."""
    assert faults({"tracing": {"endpoint": "http://me:secret@c:4318"}}) == [
        "tracing.endpoint: holds a secret; put it into tracing.headers_file"
    ]


@pytest.mark.parametrize("ratio", [-0.1, 1.5, True, "often"])
def test_share_is_between_none_and_all(ratio: object) -> None:
    """A share of 0 follows only those who say that they are followed."""
    (fault,) = faults({"tracing": {"sample_ratio": ratio}})

    assert fault.endswith("is not a number from 0 to 1")


def test_headers_are_lines() -> None:
    """Empty space around names and values means nothing; a value may have colons."""
    assert parse_headers("authorization: Bearer a:b\nx-scope :  me ") == {
        "authorization": "Bearer a:b",
        "x-scope": "me",
    }


@pytest.mark.parametrize("text", ["Bearer abc", ": value", "name:"])
def test_other_headers_are_refused_unseen(tmp_path: Path, text: str) -> None:
    """The fault names the line and the form, and never what stands there."""
    path = tmp_path / "headers"
    path.write_text(f"x: 1\n{text}")
    path.chmod(stat.S_IRUSR)

    (fault,) = faults({"tracing": {"endpoint": ENDPOINT, "headers_file": str(path)}})

    assert fault == ("tracing: line 2 is not `name: value`, as in `authorization: Bearer …`")


def test_files_without_an_endpoint_are_refused() -> None:
    """What is set has an effect, or is refused."""
    assert faults({"tracing": {"ca_file": "/ca.pem"}}) == [
        "tracing: headers_file and ca_file need an endpoint"
    ]


def test_absent_authorities_are_refused() -> None:
    """A collector that nobody can believe is a mistake of the configuration."""
    values = {"tracing": {"endpoint": "https://c:4318", "ca_file": "/nowhere/ca.pem"}}

    assert faults(values) == ["tracing: ca_file: /nowhere/ca.pem is not a file"]
