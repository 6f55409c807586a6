"""A Helm chart, rendered with values; nothing is installed and no cluster is asked."""

import json
from collections.abc import Iterable
from pathlib import Path

from tests.k8s.java_programs import run_java
from tests.k8s.manifests import Manifest, parse_manifests

OLDEST_KUBERNETES = "1.29.0"


class ValuesRefused(Exception):
    """Helm renders nothing of these values; the text is what it says about them."""


def render_chart(chart: Path, values: Path) -> list[Manifest]:
    """The manifests that the chart makes of one file of values; raises ValuesRefused."""
    (answer,) = render_chart_each(chart, [values])
    if isinstance(answer, ValuesRefused):
        raise answer
    return answer


def render_chart_each(chart: Path, files: Iterable[Path]) -> list[list[Manifest] | ValuesRefused]:
    """For each file of values its manifests, or why it is refused."""
    paths = [str(path) for path in files]
    answers = json.loads(run_java("HelmTemplate", str(chart), OLDEST_KUBERNETES, *paths))
    return [_answer(answer) for answer in answers]


def _answer(answer: dict[str, str]) -> list[Manifest] | ValuesRefused:
    if "refused" in answer:
        return ValuesRefused(answer["refused"].strip())
    return parse_manifests(answer["rendered"])
