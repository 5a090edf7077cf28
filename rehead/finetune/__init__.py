"""Base + labels → a classifier."""
