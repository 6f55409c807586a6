"""JSON Schema of the chart's values, with the schema of the sidecar's configuration in it.

`python -m tools.k8s.chart_schema` updates the file after a change of the settings. The chart's own
definitions in the same file are written by hand.
"""

import json
import re
from collections.abc import Iterator

from service.config.settings import Settings
from tools.k8s.manifests import CHART

FILE = CHART / "values.schema.json"
_DEFINITIONS = '  "definitions": {'
_IS_GENERATED = re.compile(r' {4}"[A-Z]')  # names of the chart's own definitions are lower case


def chart_schema(former: str) -> str:
    """The text with the current definitions of the settings in place of the former ones."""
    lines = [line for line in former.splitlines() if not _IS_GENERATED.match(line)]
    place = lines.index(_DEFINITIONS) + 1
    lines[place:place] = _definitions()
    return "\n".join(lines) + "\n"


def _definitions() -> Iterator[str]:
    settings = Settings.model_json_schema(ref_template="#/definitions/{model}")
    parts = settings.pop("$defs")
    # Helm reads every number as a double, which rounds large ones.
    defaults, _ = parts["DimensionConfig"]["properties"]["default"]["anyOf"]
    defaults["additionalProperties"] = {"$ref": "#/definitions/exact"}
    for name, part in sorted({**parts, "Settings": settings}.items()):
        # One line each, so that a diff shows the changed definition.
        yield f"    {json.dumps(name)}: {json.dumps(part, sort_keys=True)},"


if __name__ == "__main__":
    FILE.write_text(chart_schema(FILE.read_text()))
