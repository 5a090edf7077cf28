"""Programs that are copied into exported folders as predict.py; they import nothing from this package."""
