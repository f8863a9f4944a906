"""Packing small objects into shards."""
