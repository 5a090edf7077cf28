"""What every training run shares: objective, loop, optimizers, schedule, checkpoints, many processes."""
