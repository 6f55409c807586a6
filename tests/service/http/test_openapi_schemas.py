"""The schemas are valid, and hold what the code's enums hold."""

from openapi_schema_validator import OAS31Validator

from lookup_core.answer import Outcome
from lookup_core.errors import ErrorCode
from service.http.problem import HttpCode
from service.http.routes.openapi_schemas import openapi_schemas


def test_schemas_are_valid() -> None:
    """Each is a JSON Schema of the draft that OpenAPI 3.1 means."""
    for schema in openapi_schemas().values():
        OAS31Validator.check_schema(schema)


def test_outcomes_are_complete() -> None:
    """Every outcome that a key can have is named."""
    items = openapi_schemas()["LookupAnswer"]["properties"]["outcomes"]["items"]

    assert items["enum"] == [outcome.label for outcome in Outcome]


def test_codes_are_complete() -> None:
    """Every code that a problem can have is named."""
    codes = openapi_schemas()["Problem"]["properties"]["code"]["enum"]

    assert set(codes) == {*(code.value for code in ErrorCode), *(code.value for code in HttpCode)}


def test_requests_refuse_unknown_fields() -> None:
    """A typo in a body is caught by the schema, too."""
    for name in ("LookupRequest", "InvalidateRequest"):
        assert openapi_schemas()[name]["additionalProperties"] is False
