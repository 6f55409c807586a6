"""Lets pytest explain failed assertions of the contract suites."""

import pytest

pytest.register_assert_rewrite(
    "tests.service.connectors.backend_contract", "tests.service.connectors.source_contract"
)
