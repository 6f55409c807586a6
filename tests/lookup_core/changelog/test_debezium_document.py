"""A document of Debezium's, with or without a schema around it."""

import pytest

from lookup_core.changelog.debezium_json import DebeziumDocument, debezium_document

ID = {"field": "id", "type": "int64"}
ROW = {"field": "after", "type": "struct", "fields": [ID]}


def test_plain_document_has_no_forms() -> None:
    """Without a schema, nothing says how values look."""
    document = debezium_document({"after": {"id": 1}, "before": None})

    assert document == DebeziumDocument({"after": {"id": 1}, "before": None})
    assert document.within("after") == DebeziumDocument({"id": 1})
    assert (document.forms(), document.within("before")) == ({}, None)


def test_schema_is_beside_the_payload() -> None:
    """In an envelope, the schema says how values look, also within a field."""
    document = debezium_document({"schema": {"fields": [ROW]}, "payload": {"after": {"id": 1}}})

    assert document is not None
    row = document.within("after")
    assert row is not None
    assert (row.payload, row.forms()) == ({"id": 1}, {"id": ID})


@pytest.mark.parametrize("document", [None, {"schema": None, "payload": None}])
def test_nothing_is_no_document(document: object) -> None:
    """Where there is nothing, there is None, also within an envelope."""
    assert debezium_document(document) is None


def test_columns_may_be_named_alike() -> None:
    """A key of two columns with the names of an envelope's parts is no envelope."""
    key = {"schema": "public", "payload": 1}

    assert debezium_document(key) == DebeziumDocument(key)


@pytest.mark.parametrize("document", [[], "text", 1, {"schema": {}, "payload": [1]}])
def test_other_json_is_refused(document: object) -> None:
    """What is no object is not one of Debezium's."""
    with pytest.raises(ValueError, match=r"^it is no JSON object$"):
        debezium_document(document)


@pytest.mark.parametrize("schema", [{}, {"fields": 1}, {"fields": [1, {"field": []}]}, None])
def test_strange_schemas_say_nothing(schema: object) -> None:
    """A schema that is none of Kafka Connect's has no forms."""
    document = debezium_document({"schema": schema, "payload": {"after": {}}})

    assert document is not None
    assert (document.forms(), document.within("after")) == ({}, DebeziumDocument({}))
