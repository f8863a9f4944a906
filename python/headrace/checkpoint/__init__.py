"""Training states in object storage."""
