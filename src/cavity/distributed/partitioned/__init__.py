"""Partitions whose tilted inference is the user's own."""
