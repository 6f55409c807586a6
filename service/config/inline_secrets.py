"""Passwords that stand in the configuration file itself.

Only in the file: the environment and files of their own are where they belong.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from service.config.dsn import holds_password


def inline_secrets(document: Mapping[str, Any]) -> Iterator[str]:
    """A fault for each address with a password in it, without showing it."""
    dimensions = document.get("dimensions")
    for name, dimension in dimensions.items() if isinstance(dimensions, Mapping) else ():
        source = dimension.get("source") if isinstance(dimension, Mapping) else None
        dsn = source.get("dsn") if isinstance(source, Mapping) else None
        if isinstance(dsn, str) and holds_password(dsn):
            yield (
                f"dimensions.{name}.source.dsn: holds a password; put it in dsn_file, "
                "or set allow_inline_secrets: true"
            )
