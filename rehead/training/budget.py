"""The training budget, and the learning-rate schedule.

A budget is a number of steps, tokens or minutes. The schedule (warm-up, constant, decay to zero) is a function of the
fraction of the budget that is used. So the same schedule serves every kind of budget, and a run resumed at step k knows
its learning rate from its state.

Budgets in steps and tokens are reproducible to the bit. Those in minutes are not: they depend on the machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rehead.errors import UserError

Kind = Literal["steps", "tokens", "minutes"]
LARGEST = 1e18  # what can be counted, and more than anybody has


@dataclass(frozen=True)
class Budget:
    """How long a phase lasts."""

    kind: Kind
    amount: float

    def __post_init__(self) -> None:
        if not 0 < self.amount < LARGEST:
            raise UserError(f"A budget of {self.amount:g} {self.kind}: must be above 0 and below {LARGEST:g}.")

    def __str__(self) -> str:
        """Write it with its unit: `1 minute`, `2,000 steps`."""
        amount = self.amount if self.kind == "minutes" else round(self.amount)
        return f"{amount:,.10g} {self.kind if self.amount != 1 else self.kind[:-1]}"

    def fraction(self, *, steps: float, tokens: float, seconds: float) -> float:
        """Give the fraction of the budget that is used, from 0 to 1."""
        used = {"steps": steps, "tokens": tokens, "minutes": seconds / 60}[self.kind]
        return min(used / self.amount, 1.0)


@dataclass(frozen=True)
class Schedule:
    """The multiplier of the learning rate: linear warm-up, constant, linear decay to zero."""

    warmup: float = 0.02
    "Share of the run in which the learning rate rises from zero."
    decay: float = 0.5
    "Share of the run, at its end, in which it falls to zero."

    def __post_init__(self) -> None:
        if not (self.warmup >= 0 and self.decay >= 0 and self.warmup + self.decay <= 1):
            raise UserError(
                f"--warmup-ratio {self.warmup:g} and --decay-ratio {self.decay:g} do not fit into one run. "
                "Both are fractions of it: 0 to 1 each, and at most 1 together."
            )

    def factor(self, fraction: float) -> float:
        """Give the multiplier at this fraction of the run."""
        rising = fraction / self.warmup if self.warmup else 1.0
        falling = (1 - fraction) / self.decay if self.decay else 1.0
        return max(0.0, min(1.0, rising, falling))
