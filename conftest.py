"""For all tests of this checkout: reports say what kind of failure each failure is."""

import pytest

# So that comparisons in helpers are seen, too, and say what they have compared.
pytest.register_assert_rewrite("tests", "testing")

pytest_plugins = ["testing.failure_kinds"]
