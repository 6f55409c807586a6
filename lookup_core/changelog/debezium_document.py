"""A document of Debezium's, with or without the schema that Kafka Connect puts around it.

What is in the document is not looked at here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lookup_core.changelog.gathered_changes import Forms

_ENVELOPE = {"schema", "payload"}


@dataclass(frozen=True, slots=True)
class DebeziumDocument:
    """What a message's key or value says."""

    payload: Mapping[str, Any]
    schema: object = None  # Kafka Connect's, which says how values look; None: nothing does

    def forms(self) -> Forms:
        """The schemas of the payload's fields, by their names."""
        fields = self.schema.get("fields") if isinstance(self.schema, dict) else None
        if not isinstance(fields, list):
            return {}
        return {
            field["field"]: field
            for field in fields
            if isinstance(field, dict) and isinstance(field.get("field"), str)
        }

    def within(self, name: str) -> "DebeziumDocument | None":
        """The object in the payload's field of this name, if there is one."""
        payload = self.payload.get(name)
        if not isinstance(payload, dict):
            return None
        return DebeziumDocument(payload, self.forms().get(name) if self.schema else None)


def debezium_document(document: object) -> DebeziumDocument | None:
    """From JSON; None where there is nothing in it. Raises ValueError if it is no object."""
    schema: object = None
    if isinstance(document, dict) and _is_envelope(document):
        schema, document = document["schema"], document["payload"]
    if document is None:
        return None
    if isinstance(document, dict):
        return DebeziumDocument(document, schema)
    raise ValueError("it is no JSON object")


def _is_envelope(document: Mapping[str, Any]) -> bool:
    # Columns may have these names, too; they hold texts and numbers.
    return document.keys() == _ENVELOPE and isinstance(document["schema"], dict | None)
