"""The programs that go into exported folders as predict.py, as they are: they import nothing of this package."""
