"""How a dimension will hear of changes."""

from service.config.refresh import Refresh
from tests.service.config.configuration import dimension_faults


def test_nothing_is_followed_by_default() -> None:
    """All three words may stand in a file, with null."""
    assert Refresh.model_validate({"listen": None, "changelog": None, "reload": None}) == Refresh()


def test_following_is_not_available() -> None:
    """Each of the three is refused as long as nothing is behind it."""
    refused = "not available in this version; leave it out, or set it to null"

    assert dimension_faults(refresh={"listen": "c", "changelog": {}, "reload": "1h"}) == [
        f"refresh.listen: {refused}",
        f"refresh.changelog: {refused}",
        f"refresh.reload: {refused}",
    ]
