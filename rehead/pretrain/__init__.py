"""Unlabelled text → a base: one file per objective, and the run that uses them."""
