"""A finished model at work: look into it."""
