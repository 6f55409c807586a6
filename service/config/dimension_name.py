"""What a dimension may be called: its name stands in addresses, metrics and variables.

Not the table's name, which is the database's affair.
"""

import re
from typing import Annotated

from pydantic import AfterValidator

MAX_CHARACTERS = 63
FORM = r"[A-Za-z0-9](_?[A-Za-z0-9.-])*"  # two underscores part the words of a variable


def check_dimension_name(name: str) -> str:
    """The same name; raises ValueError if it could not stand everywhere."""
    if len(name) > MAX_CHARACTERS or not re.fullmatch(FORM, name, re.ASCII):
        raise ValueError(
            f"not a name for a dimension: up to {MAX_CHARACTERS} letters, digits, '.', '-' and "
            "single '_' between them"
        )
    return name


DimensionName = Annotated[str, AfterValidator(check_dimension_name)]
