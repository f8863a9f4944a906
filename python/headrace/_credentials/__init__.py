"""Where keys and tokens come from."""
