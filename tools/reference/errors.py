"""docs/reference/errors.md: error codes with their remedies, exceptions, and doctor findings."""

import inspect
from collections.abc import Iterator

import sidelook
from lookup_core.error_texts import ErrorScope
from lookup_core.errors import ErrorCode, SidelookError
from service.http.problem import HttpCode, problem_of_code
from service.http.replies.health_code import HealthCode
from tools.reference.http import has_status
from tools.reference.markdown import bullets, code, examples, page, paragraph, sentence, unwrapped

_HEADINGS = {
    ErrorScope.KEY: "Errors of a key",
    ErrorScope.BACKEND: "Errors of a query",
    ErrorScope.REQUEST: "Errors of a request",
    ErrorScope.STREAM: "Errors of a stream",
    ErrorScope.CLIENT: "Errors of the client",
}


def errors_page() -> str:
    """The text of the page."""
    texts = examples("errors")
    parts = [texts[""]]
    for scope, heading in _HEADINGS.items():
        parts += [f"## {heading}", texts[heading]]
        for each in ErrorCode:
            if each.scope is scope:
                parts += _code_parts(each)
    parts += ["## Errors of HTTP only", texts["Errors of HTTP only"]]
    parts.append(bullets(f"{code(each)} ({each.status}): {each.meaning}." for each in HttpCode))
    parts += ["## Facts of the health", texts["Facts of the health"]]
    parts.append(bullets(f"{code(each)} ({each.severity}): {each.meaning}." for each in HealthCode))
    parts += ["## Exceptions", texts["Exceptions"], bullets(_exceptions())]
    parts += ["## Findings of sidelook doctor", texts["Findings of sidelook doctor"]]
    return page("Errors", parts)


def _code_parts(error: ErrorCode) -> Iterator[str]:
    yield f"### {error}"
    retriable = "retriable" if error.is_retryable else "not retriable"
    facts = [f"HTTP {problem_of_code(error, '').status}"] if has_status(error) else []
    yield paragraph(" · ".join([*facts, retriable]))
    yield paragraph(sentence(error.meaning))
    yield paragraph(f"**Remedy:** {sentence(error.remedy)}")


def _exceptions() -> Iterator[str]:
    for name in sidelook.__all__:
        exported = getattr(sidelook, name)
        if inspect.isclass(exported) and issubclass(exported, SidelookError):
            summary = next(unwrapped(inspect.getdoc(exported) or ""))
            yield f"{code(name)}: {summary}"
