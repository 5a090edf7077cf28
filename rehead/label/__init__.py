"""Labelling: unlabelled text and a person → labels, an estimate of how good they are, and a classifier."""
