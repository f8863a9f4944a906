"""A store: addresses, settings, listing, and reading and writing whole objects."""
