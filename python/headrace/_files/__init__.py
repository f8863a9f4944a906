"""Objects as files."""
