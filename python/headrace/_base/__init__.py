"""Errors, options, progress: what every other room stands on."""
