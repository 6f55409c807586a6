"""Requests are taken in their exact form, and every fault is told with its path."""

import pytest

from lookup_core.errors import ErrorCode, InvalidRequest
from service.http.routes.lookup_request import (
    InvalidateRequest,
    LookupRequest,
    from_json,
    from_query,
)


def test_whole_request_is_taken() -> None:
    """Keys, columns and timeout arrive as they were sent."""
    asked = from_json(LookupRequest, {"keys": [1, None], "columns": ["a"], "timeout_ms": 1500})

    assert asked == LookupRequest(keys=[1, None], columns=["a"], timeout_ms=1500)
    assert asked.timeout_s == 1.5


def test_only_keys_are_needed() -> None:
    """Without columns and timeout the dimension's own count."""
    asked = from_json(LookupRequest, {"keys": []})

    assert (asked.columns, asked.timeout_s) == (None, None)


@pytest.mark.parametrize(
    ("value", "detail"),
    [
        ({}, "keys: Field required"),
        ([], "body: Input should be a valid dictionary or instance of LookupRequest"),
        ({"keys": 1}, "keys: Input should be a valid list"),
        ({"keys": [], "columns": [1]}, "columns.0: Input should be a valid string"),
        ({"keys": [], "timeout_ms": 0}, "timeout_ms: Input should be greater than 0"),
        ({"keys": [], "timeout_ms": True}, "timeout_ms: Input should be a valid integer"),
        ({"keys": [], "kyes": []}, "kyes: Extra inputs are not permitted"),
    ],
)
def test_faults_name_their_path(value: object, detail: str) -> None:
    """A field that is unknown, missing or of another type is named."""
    with pytest.raises(InvalidRequest) as caught:
        from_json(LookupRequest, value)

    assert (caught.value.code, caught.value.detail) == (ErrorCode.BAD_REQUEST, detail)


def test_many_faults_are_summed_up() -> None:
    """A body of faults only does not come back as large."""
    with pytest.raises(InvalidRequest) as caught:
        from_json(LookupRequest, {"keys": [], "columns": [1] * 1000})

    assert caught.value.detail.endswith("; and 995 more")


@pytest.mark.parametrize("value", [{}, {"all": False}, {"keys": [1], "all": True}])
def test_invalidation_names_keys_or_all(value: object) -> None:
    """Nothing is forgotten by a request that does not say what."""
    with pytest.raises(InvalidRequest) as caught:
        from_json(InvalidateRequest, value)

    assert caught.value.detail == "body: Value error, either keys or all: true is needed"


def test_invalidation_of_no_keys_is_valid() -> None:
    """An empty list names keys: none."""
    assert from_json(InvalidateRequest, {"keys": []}) == InvalidateRequest(keys=[])


@pytest.mark.parametrize(
    ("query", "columns", "timeout_ms"),
    [
        ({}, None, None),
        ({"columns": "a,b"}, ["a", "b"], None),
        ({"columns": ""}, [], None),
        ({"timeout_ms": "250"}, None, 250),
    ],
)
def test_query_string_is_taken(
    query: dict[str, str], columns: list[str] | None, timeout_ms: int | None
) -> None:
    """Columns and timeout may stand in the query."""
    expected = LookupRequest(keys=[], columns=columns, timeout_ms=timeout_ms)

    assert from_query(query) == expected


@pytest.mark.parametrize("query", [{"timeout_ms": "2s"}, {"timeout_ms": ""}, {"column": "a"}])
def test_bad_query_strings_are_refused(query: dict[str, str]) -> None:
    """An unknown name or a wrong number in the query is named, too."""
    with pytest.raises(InvalidRequest) as caught:
        from_query(query)

    assert caught.value.detail.startswith(f"{next(iter(query))}: ")
