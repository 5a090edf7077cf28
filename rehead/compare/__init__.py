"""Scratch, pretrained and linear baselines on the same labels → a report."""
