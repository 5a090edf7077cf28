"""Bases that others pretrained: found where the user says, checked before they are believed, and encoding texts."""
