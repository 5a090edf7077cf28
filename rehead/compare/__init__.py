"""Compare training from scratch, pretrained models and linear baselines on the same labels; write a report."""
