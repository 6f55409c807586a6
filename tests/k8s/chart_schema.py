"""The schema of the chart's values, with that of the sidecar's configuration in it; also a program.

`python -m tests.k8s.chart_schema` after a change of the settings: a test compares both. What the
chart itself asks of values is written by hand, in the same file.
"""

import json
import re
from collections.abc import Iterator

from service.config.settings import Settings
from tests.k8s.manifests import CHART

FILE = CHART / "values.schema.json"
_DEFINITIONS = '  "definitions": {'
_IS_GENERATED = re.compile(r' {4}"[A-Z]')  # those of the chart begin with a small letter


def chart_schema(former: str) -> str:
    """The text with the settings' definitions of now instead of those that stand in it."""
    lines = [line for line in former.splitlines() if not _IS_GENERATED.match(line)]
    place = lines.index(_DEFINITIONS) + 1
    lines[place:place] = _definitions()
    return "\n".join(lines) + "\n"


def _definitions() -> Iterator[str]:
    settings = Settings.model_json_schema(ref_template="#/definitions/{model}")
    parts = settings.pop("$defs")
    # Helm reads every number as a double: a larger one would come out as another one.
    defaults, _ = parts["DimensionConfig"]["properties"]["default"]["anyOf"]
    defaults["additionalProperties"] = {"$ref": "#/definitions/exact"}
    for name, part in sorted({**parts, "Settings": settings}.items()):
        # One line each, so that a change shows which one it is of.
        yield f"    {json.dumps(name)}: {json.dumps(part, sort_keys=True)},"


if __name__ == "__main__":
    FILE.write_text(chart_schema(FILE.read_text()))
