"""``aistore.pytorch`` on headrace; as ``aistore`` where AIStore's SDK is not installed.

``docs/guide/aistore_plugin.md`` says what is the same, and what differs.
"""
