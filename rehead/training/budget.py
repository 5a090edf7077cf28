"""How long a run goes on, and what the learning rate does meanwhile.

A budget is a number of steps, of tokens or of minutes. All three come down to one number, the fraction of the run that
is behind us, and the schedule is a function of that fraction alone: warm up, stay, decay to zero. So the same schedule
serves every kind of budget, and a run resumed at step k knows its learning rate from its state.

Steps and tokens repeat to the bit. Minutes do not: how far one gets depends on the machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rehead.errors import UserError

Kind = Literal["steps", "tokens", "minutes"]
LARGEST = 1e18  # what can be counted, and more than anybody has


@dataclass(frozen=True)
class Budget:
    """How much of what a phase may use."""

    kind: Kind
    amount: float

    def __post_init__(self) -> None:
        if not 0 < self.amount < LARGEST:
            raise UserError(f"A budget of {self.amount:g} {self.kind}: must be above 0 and below {LARGEST:g}.")

    def __str__(self) -> str:
        """Say it with its unit: `1 minute`, `2,000 steps`."""
        amount = self.amount if self.kind == "minutes" else round(self.amount)
        return f"{amount:,.10g} {self.kind if self.amount != 1 else self.kind[:-1]}"

    def fraction(self, *, steps: float, tokens: float, seconds: float) -> float:
        """Say which part of the budget is used up, from 0 to 1."""
        used = {"steps": steps, "tokens": tokens, "minutes": seconds / 60}[self.kind]
        return min(used / self.amount, 1.0)


@dataclass(frozen=True)
class Schedule:
    """Warm up, stay, decay: what the learning rate is multiplied by."""

    warmup: float = 0.02
    "The share of the run in which the rate rises from nothing."
    decay: float = 0.5
    "The share of the run, at its end, in which the rate falls to nothing."

    def __post_init__(self) -> None:
        if not (self.warmup >= 0 and self.decay >= 0 and self.warmup + self.decay <= 1):
            raise UserError(
                f"--warmup-ratio {self.warmup:g} and --decay-ratio {self.decay:g} do not fit into one run. "
                "Both are fractions of it: 0 to 1 each, and at most 1 together."
            )

    def factor(self, fraction: float) -> float:
        """Give the factor at this fraction of the run."""
        rising = fraction / self.warmup if self.warmup else 1.0
        falling = (1 - fraction) / self.decay if self.decay else 1.0
        return max(0.0, min(1.0, rising, falling))
