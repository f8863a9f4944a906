"""For all tests of this checkout: reports say what kind of failure each failure is."""

pytest_plugins = ["testing.failure_kinds"]
