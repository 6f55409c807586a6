"""Lets the contract suite explain its failures as test modules do; holds no fixtures."""

import pytest

pytest.register_assert_rewrite("tests.service.backends.backend_contract")
