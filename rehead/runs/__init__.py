"""A run on disk, and texts scored by it."""
