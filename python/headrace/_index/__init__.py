"""Lists of objects and of members: tables, saved indexes, shards."""
