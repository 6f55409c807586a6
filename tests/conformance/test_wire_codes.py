"""The codes in docs/wire_protocol.md are those that answers and refusals can have."""

import re

from lookup_core.errors import ErrorCode
from tests.conformance.wire_blocks import DOCUMENT

IN_REFUSALS = {
    ErrorCode.BAD_REQUEST,
    ErrorCode.KEY_TYPE,
    ErrorCode.UNKNOWN_COLUMN,
    ErrorCode.UNKNOWN_DIMENSION,
}
# What neither a RESULT nor an ERROR has: a new code is in the tables, or named here.
ELSEWHERE = {
    ErrorCode.KEY_TOO_LARGE,  # the client's own finding: it does not send such a key
    *(ErrorCode.BAD_JSON, ErrorCode.BAD_ARROW, ErrorCode.TOO_MANY_KEYS, ErrorCode.DRAINING),  # HTTP
    *(ErrorCode.ANSWER_TOO_LARGE, ErrorCode.UNAUTHORIZED),  # HTTP, too
    *(ErrorCode.BAD_FRAME, ErrorCode.UNSUPPORTED_VERSION, ErrorCode.CREDIT_VIOLATION),  # closes
    *(ErrorCode.SEQUENCE_GAP, ErrorCode.UNKNOWN_CHANNEL),
}


def rows_of_keys() -> list[tuple[set[str], str]]:
    """The codes of each row of the table of keys, and whether another try may help."""
    _, _, table = DOCUMENT.read_text().partition("| code of a key |")
    rows = [row.split("|")[1:3] for row in table.partition("\n\n")[0].splitlines()[2:]]
    return [(set(re.findall("`([a-z_]+)`", codes)), retryable.strip()) for codes, retryable in rows]


def test_table_names_every_code_of_keys() -> None:
    """Exactly the codes that the outcome of a key may have stand there."""
    named = [code for codes, _ in rows_of_keys() for code in codes]

    assert sorted(named) == sorted(set(ErrorCode) - IN_REFUSALS - ELSEWHERE)


def test_table_says_when_to_try_again() -> None:
    """Another try may help where the code says so."""
    told = {ErrorCode(code): answer for codes, answer in rows_of_keys() for code in codes}

    assert told == {code: "yes" if code.is_retryable else "no" for code in told}


def test_refusals_name_the_other_codes() -> None:
    """ERROR may have a code of the keys, or one of these."""
    (told,) = re.findall(r"a word as above, or (.*?);", DOCUMENT.read_text())

    assert set(re.findall("`([a-z_]+)`", told)) == IN_REFUSALS
