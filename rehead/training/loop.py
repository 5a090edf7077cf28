"""The training loop: one for pretraining, fine-tuning and training from scratch.

    for every phase: for every step until the budget is used up:
        read this process's parts of the step's batch (prefetched by a thread)
        all-reduce the counts → forward and backward, part by part → all-reduce the losses → clip → optimizers
        at intervals: log metrics, validate, save a checkpoint

Everything a step depends on is either in the checkpoint or a function of the step number: the batch, the dropout seed,
the learning rate. So a run that is killed and resumed ends with the same bytes as one that is not. What the processes
decide together (stop, validate, save) they decide from numbers that all of them have.
"""

from __future__ import annotations

import dataclasses
import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rehead.errors import DamagedError, UserError
from rehead.progress import Progress, amount, progress
from rehead.text.order import random_bits
from rehead.text.random_streams import Stream
from rehead.training import checkpoint
from rehead.training.budget import Budget, Schedule
from rehead.training.checkpoint import Checkpoint, Tensors
from rehead.training.distributed import (
    World,
    check_compiler,
    gather_model,
    gather_parameters,
    gather_tensor,
    has_bfloat16,
    replicate,
    shard,
)
from rehead.training.metrics_log import MetricsLog, memory
from rehead.training.objective import Batch, Measures, Objective
from rehead.training.optimizers import Optimizers, Rates, clip
from rehead.training.options import TrainingOptions
from rehead.training.prefetch import prefetch
from rehead.training.row_optimizer import expect_sparse
from rehead.training.state import State, load_tensors, state_of, tensors_of
from rehead.training.stopping import Stopped, stop_signals

CHECKPOINTS, BEST = "checkpoints", "best"
LOG_EVERY = 10  # steps between two lines of training metrics


Watch = Callable[[Objective, State, float], None]
"Called after every validation: with the objective, where training is, and the fraction of the phase that is done."


@dataclass
class Phase:
    """One objective with its budget and learning rates."""

    objective: Objective
    budget: Budget
    rates: Rates
    patience: int | None = None
    "Early stopping: stop after this many validations without improvement."


def train(
    phases: list[Phase],
    options: TrainingOptions,
    world: World,
    directory: Path | None,
    *,
    resume: bool = False,
    quiet: bool = False,
    say: Callable[[str], None] = lambda line: None,
    lines: list[dict[str, Any]] | None = None,
    watch: Watch | None = None,
) -> State:
    """Train phase after phase; afterwards the model has the weights that did best in validation.

    `directory` receives `metrics.jsonl` and `checkpoints/`; without one the best weights are kept in memory, and
    nothing can be resumed. `lines` receives the metrics that this call logs; `watch` is called after every validation,
    in every process, and must leave the model as it is. On SIGINT or SIGTERM, saves a checkpoint
    and raises `Stopped`.
    """
    if directory is None and (resume or world.size > 1 or len(phases) > 1):
        raise ValueError("a run without a directory is one phase in one process, and cannot be resumed")
    folder = None if directory is None else directory / CHECKPOINTS
    found = checkpoint.newest(folder, say) if resume and folder is not None else None
    state = State() if found is None else state_of(found)
    if resume:
        say("there is no checkpoint yet: starting from step 0" if found is None else f"resuming at step {state.step:,}")
    if world.all_reduce([float(state.step)]) != [float(state.step * world.size)]:
        raise UserError(f"{folder} is not the same for all processes. --out must be a directory that they share.")
    record = None
    if world.is_main and folder is not None and directory is not None:
        folder.mkdir(parents=True, exist_ok=True)
        checkpoint.clear_leftovers(folder)
        checkpoint.clear_after(folder, state.step)
        record = MetricsLog(directory / "metrics.jsonl", state.lines)
        state.lines = record.lines
    world.barrier()
    with stop_signals() as stopping:
        for place, phase in enumerate(phases):
            if place < state.phase:
                continue
            if place > state.phase:
                state = dataclasses.replace(
                    State(), step=state.step, tokens=state.tokens, seconds=state.seconds, phase=place, lines=state.lines
                )
                phases[place - 1].objective.conclude()
                if options.shard:  # a module can be spread once: the next phase gets a model of its own
                    phase.objective.use(gather_model(phases[place - 1].objective.model, sharded=True))
                    gather_parameters(phase.objective)
                phase.objective.adapt_trained_model()
            training = _Training(phase, state, options, world, folder, record, quiet=quiet, stopping=stopping)
            training.lines = [] if lines is None else lines
            training.watch = watch
            if len(phases) > 1:
                training.what = f"{phase.objective.name} ({place + 1} of {len(phases)})"
            training.last = place == len(phases) - 1
            training.begin(found)
            found = None
            training.run()
    training.take_best(say)
    return state


class _Training:
    """One phase in progress."""

    def __init__(
        self,
        phase: Phase,
        state: State,
        options: TrainingOptions,
        world: World,
        folder: Path | None,
        record: MetricsLog | None,
        *,
        quiet: bool,
        stopping: list[int],
    ) -> None:
        self.objective, self.budget, self.patience = phase.objective, phase.budget, phase.patience
        self.state, self.options, self.world = state, options, world
        self.folder, self.record, self.stopping = folder, record, stopping
        self.quiet = quiet or not world.is_main
        self.what, self.last = phase.objective.name, True
        self.schedule = Schedule(options.warmup_ratio, options.decay_ratio)
        self.parts = options.accumulate * world.size
        self.mine = range(world.rank * options.accumulate, (world.rank + 1) * options.accumulate)
        self.module: nn.Module = self.objective
        self.optimizers = self._prepare(phase.rates)
        self.saved_at, self.saved_step = state.seconds, -1
        self.saved_best, self.factor = state.best_step, 0.0
        self.validated_at, self.validation_took = state.phase_seconds, 0.0
        self.lines: list[dict[str, Any]] = []
        self.watch: Watch | None = None
        self.best_tensors: Tensors = {}
        "The best weights so far, where there is no directory to save them in."

    def _prepare(self, rates: Rates) -> Optimizers:
        """Move the objective to its device, replicate or shard it, and make its optimizers."""
        objective, options = self.objective, self.options
        idle = set(objective.idle())
        for parameter in objective.parameters():
            parameter.requires_grad_(parameter not in idle)
        objective.to(self.world.device)
        expect_sparse(objective, [] if options.shard or self.world.device.type != "cpu" else objective.row_tables())
        if options.shard:
            shard(objective, objective.model.base.layer_modules(), self.world)
        else:
            self.module = replicate(objective, self.world)
        if options.compile:
            check_compiler(self.world.device)
            for layer in objective.model.base.layer_modules():
                layer.compile()
        return Optimizers(objective, rates, options.optimizer, sharded=options.shard)

    def begin(self, found: Checkpoint | None) -> None:
        """Restore a checkpoint's tensors, if there is one."""
        if found is None:
            return
        try:
            load_tensors(self.objective, found.model)
            self.optimizers.load(found.optimizer)
            self.saved_step = self.state.step
        except DamagedError as error:
            raise DamagedError(f"the checkpoint of step {self.state.step} does not fit: {error}") from None

    def run(self) -> None:
        """Train until the budget is used up."""
        state = self.state
        total, unit = self._size()
        with (
            progress(self.what, total, unit=unit, quiet=self.quiet) as bar,
            prefetch(self._read, state.phase_step) as batches,
        ):
            bar.resume(self._done())
            self._validate_if_due()
            clock, before = time.monotonic(), (state.seconds, state.phase_seconds)
            began, began_tokens = time.perf_counter(), state.tokens
            while self._fraction() < 1 and not self._patience_is_over():
                totals, parts = self._share(next(batches), time.monotonic() - clock)
                passed = totals.pop("seconds")
                state.seconds, state.phase_seconds = before[0] + passed, before[1] + passed
                stop, tokens = totals.pop("stop"), int(totals.pop("tokens"))
                if stop:
                    self._save()
                    raise Stopped(self.stopping[0] if self.stopping else signal.SIGTERM)
                losses, norm = self._step(parts, totals, tokens)
                state.step, state.phase_step = state.step + 1, state.phase_step + 1
                state.tokens, state.phase_tokens = state.tokens + tokens, state.phase_tokens + tokens
                for name, loss in losses.items():
                    state.losses[name] = state.losses.get(name, 0.0) + loss
                    state.counts[name] = state.counts.get(name, 0.0) + totals[name]
                if state.phase_step % LOG_EVERY == 0 or self._fraction() >= 1 or self._validation_is_due():
                    spent = time.perf_counter() - began
                    self._write_line(bar, norm, (state.tokens - began_tokens) / max(spent, 1e-9))
                bar.update(self._done())
                self._validate_if_due()
                self._save_if_due()
            if self.last:
                self._save()
        if self.world.is_main and self.last and self.folder is not None:
            checkpoint.clear(self.folder, keep=1)
            checkpoint.clear_but(self.folder / BEST, {state.best_step})

    def _size(self) -> tuple[int, str]:
        """Give the length of the phase and its unit, for the progress bar."""
        if self.budget.kind == "minutes":
            return math.ceil(60 * self.budget.amount), "s"
        return math.ceil(self.budget.amount), self.budget.kind

    def _done(self) -> int:
        """Give how much of it is done, in the same unit."""
        state = self.state
        done = {"steps": state.phase_step, "tokens": state.phase_tokens, "minutes": int(state.phase_seconds)}
        return min(done[self.budget.kind], self._size()[0])

    def _fraction(self, steps: float = 0, tokens: float = 0) -> float:
        """Give the fraction of the budget used, now or after so many more steps and tokens."""
        state = self.state
        return self.budget.fraction(
            steps=state.phase_step + steps, tokens=state.phase_tokens + tokens, seconds=state.phase_seconds
        )

    def _read(self, step: int) -> list[Batch]:
        return [self.objective.read(step, part, self.parts) for part in self.mine]

    def _share(self, parts: list[Batch], seconds: float) -> tuple[dict[str, float], list[Batch]]:
        """Add up the counts of all parts of the step, over all processes; the first one's clock is everybody's."""
        totals = {name: sum(part.counts[name] for part in parts) for name in parts[0].counts}
        totals |= {"tokens": float(sum(part.tokens for part in parts)), "stop": float(bool(self.stopping))}
        totals |= {"seconds": seconds if self.world.is_main else 0.0}
        return dict(zip(totals, self.world.all_reduce(list(totals.values())), strict=True)), parts

    def _step(self, parts: list[Batch], totals: dict[str, float], tokens: int) -> tuple[dict[str, float], float]:
        """Take one step; give the sums of the losses over all parts, and the gradient norm."""
        state, objective = self.state, self.objective
        objective.train()
        sums = dict.fromkeys(objective.weights, 0.0)
        for place, (part, batch) in enumerate(zip(self.mine, parts, strict=True)):
            torch.manual_seed(int(random_bits(self.options.seed, Stream.DROPOUT, state.step, part)[0]) >> 1)
            with self._synchronised(last=place == len(parts) - 1):
                with self._precision():
                    losses = self.module(self._here(batch)).losses
                wanted = sum(objective.weights[name] * loss / max(totals[name], 1.0) for name, loss in losses.items())
                # Gradients are averaged over the processes, but these are parts of one sum.
                torch.as_tensor(wanted * self.world.size).backward()  # type: ignore[no-untyped-call]
            for name, loss in losses.items():
                sums[name] += float(loss.detach())
        sums = dict(zip(sums, self.world.all_reduce(list(sums.values())), strict=True))
        norm = clip(objective.parameters(), self.options.clip)
        if not all(map(math.isfinite, (*sums.values(), norm))):
            self._not_finite(sums)
        self.factor = self.schedule.factor(self._fraction(0.5, tokens / 2))
        self.optimizers.step(self.factor, self._fraction(0.5, tokens / 2))
        return sums, norm

    def _not_finite(self, sums: dict[str, float]) -> None:
        losses = [name for name, each in sums.items() if not math.isfinite(each)]
        if losses and self.world.is_main and self.folder is not None:  # these weights are no good, if they were saved
            checkpoint.clear_after(self.folder, self.state.step - 1)
        sick = f"loss ({losses[0]})" if losses else "gradient"
        lr, scale = self.options.lr, self.options.lr_scale
        lower = f"--lr-scale {scale / 2:g}" if lr is None else f"--lr {lr / 2:g}"
        raise UserError(
            f"step {self.state.step + 1}: the {sick} is not finite: training diverged. {self._last_good()}. "
            f"Start again (--overwrite) with a lower learning rate, such as {lower}."
        )

    def _last_good(self) -> str:
        kept = [] if self.folder is None else checkpoint.listed(self.folder)
        return f"The last good checkpoint is {kept[-1]}" if kept else "There is no checkpoint yet"

    @contextmanager
    def _synchronised(self, *, last: bool) -> Iterator[None]:
        """Synchronise gradients with the last part of a step only."""
        if isinstance(self.module, nn.parallel.DistributedDataParallel):
            with nullcontext() if last else self.module.no_sync():
                yield
        elif self.options.shard:
            self.module.set_requires_gradient_sync(last)  # type: ignore[operator]
            yield
        else:
            yield

    def _precision(self) -> Any:  # noqa: ANN401 (a context manager of torch's)
        """Give the autocast context of the chosen precision."""
        wanted = self.options.precision
        bfloat16 = wanted == "bfloat16" or (wanted == "auto" and has_bfloat16(self.world.device))
        return torch.autocast(self.world.device.type, torch.bfloat16) if bfloat16 else nullcontext()

    def _here(self, batch: Batch) -> dict[str, Tensor]:
        device = self.world.device
        return {name: each.to(device, non_blocking=True) for name, each in batch.tensors.items()}

    def _validations_until_now(self) -> int:
        """Give how many validations are due by now, without the one before the first step."""
        return int(self._fraction() * self.options.validations + 1e-9)

    def _validation_is_due(self) -> bool:
        """Tell whether to validate: before the first step, and then at even fractions of the budget.

        Of a budget in minutes validation takes a tenth at most: slow validations become less frequent.
        """
        state = self.state
        if not self.options.validations or self._validations_until_now() <= state.validated:
            return False
        soon = state.phase_seconds - self.validated_at < 10 * self.validation_took
        return not (self.budget.kind == "minutes" and soon and self._fraction() < 1)

    def _patience_is_over(self) -> bool:
        """Tell whether to stop early: too many validations without improvement."""
        state = self.state
        if self.patience is None or state.best is None:
            return False
        return state.validated - state.best_validated >= self.patience

    def _validate_if_due(self) -> None:
        """Validate if it is due; keep the weights if they are the best so far."""
        state = self.state
        if not self._validation_is_due():
            return
        began = time.perf_counter()
        state.validated = self._validations_until_now()
        found = self.objective.report(self._validate())
        self._write({"kind": "valid", **self._where(), **found})
        state.measured = {name: value for name, value in found.items() if math.isfinite(value)}
        loss = self.objective.selection_loss(state.measured)
        eligible = state.phase_step or self.objective.initial_may_be_best
        if eligible and loss < (math.inf if state.best is None else state.best):
            state.best, state.best_step, state.best_measured = loss, state.step, state.measured
            state.best_validated = state.validated
            if self.last:
                self._keep_best()
        if self.watch is not None:
            self.watch(self.objective, state, self._fraction())
        took = time.perf_counter() - began if self.world.is_main else 0.0
        self.validated_at, self.validation_took = state.phase_seconds, self.world.all_reduce([took])[0]

    def _validate(self) -> Measures:
        """Evaluate the held-out batches; every process its part of each."""
        objective, measures = self.objective, Measures()
        objective.eval()
        with torch.no_grad(), self._precision():
            for batch in objective.held_out(self.world.rank, self.world.size):
                sums = objective(self._here(batch))
                for into, given in ((measures.losses, sums.losses), (measures.metrics, sums.metrics)):
                    for name, value in given.items():
                        into[name] = into.get(name, 0.0) + float(value)
                for name, count in batch.counts.items():
                    measures.counts[name] = measures.counts.get(name, 0.0) + count
        for each in (measures.losses, measures.counts, measures.metrics):
            names = sorted(each)
            each.update(zip(names, self.world.all_reduce([each[name] for name in names]), strict=True))
        return measures

    def _where(self) -> dict[str, Any]:
        state = self.state
        return {
            "objective": self.objective.name,
            "step": state.step,
            "tokens": state.tokens,
            "seconds": round(state.seconds, 3),
        }

    def _write(self, line: dict[str, Any]) -> None:
        if self.record is not None:
            with self._writing():
                self.record.write(line)
        self.lines.append(line)
        self.state.lines += 1

    def _write_line(self, bar: Progress, norm: float, rate: float) -> None:
        """Log the mean losses since the last line, and show them beside the progress bar."""
        state, weights = self.state, self.objective.weights
        means = {name: state.losses[name] / max(state.counts[name], 1.0) for name in state.losses}
        loss = sum(weights[name] * mean for name, mean in means.items())
        line = {"kind": "train", **self._where(), "loss": loss, **({} if len(means) == 1 else means)}
        held = memory()
        line |= {"lr_factor": round(self.factor, 6), "gradient": norm}
        self._write(line | {"tokens_per_second": round(rate), "memory": held})
        seen = f"loss {loss:.3f}"
        if "loss" in state.measured:
            seen += f", held out {state.measured['loss']:.3f}"
        if self.budget.kind != "tokens":  # else the bar says it
            seen += f", {rate:,.0f} tokens/s"
        bar.note = f"{seen}, {amount(held, 'B')}"
        state.losses, state.counts = {}, {}

    def _save_if_due(self) -> None:
        state, every = self.state, self.options.checkpoint_steps
        waited = state.seconds - self.saved_at >= 60 * self.options.checkpoint_minutes
        if (self.options.checkpoint_minutes and waited) or (every and state.phase_step % every == 0):
            self._save()

    def _save(self) -> None:
        """Save a checkpoint, unless this step has one; all processes contribute, the first one writes."""
        if self.folder is None or self.saved_step == self.state.step:
            return
        optimizer = self.optimizers.state(keep=self.world.is_main)
        saved = Checkpoint(self._tensors(), optimizer, dataclasses.asdict(self.state))
        if self.world.is_main:
            self._put(saved, self.folder)
            checkpoint.clear(self.folder, keep=2)
            # The checkpoint before this one may still be resumed from, and goes by another best.
            checkpoint.clear_but(self.folder / BEST, {self.saved_best, self.state.best_step})
        self.saved_at, self.saved_step, self.saved_best = self.state.seconds, self.state.step, self.state.best_step
        self.world.barrier()

    def _keep_best(self) -> None:
        """Save the model alone: the result of the run unless a later validation is better."""
        tensors = {name: each for name, each in self._tensors().items() if name.startswith(self.objective.kept)}
        if self.folder is None:
            self.best_tensors = {name: each.clone() for name, each in tensors.items()}
        elif self.world.is_main:
            self._put(Checkpoint(tensors, {}, {"step": self.state.step}), self.folder / BEST)

    def _put(self, saved: Checkpoint, folder: Path) -> None:
        with self._writing():
            checkpoint.save(saved, folder)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Add to an error of writing, such as a full disk, which checkpoint is still there."""
        try:
            yield
        except UserError as error:
            raise UserError(f"{error} {self._last_good()}: free some space, and resume with --resume.") from error

    def _tensors(self) -> Tensors:
        return {name: gather_tensor(each, keep=self.world.is_main) for name, each in tensors_of(self.objective).items()}

    def take_best(self, say: Callable[[str], None]) -> None:
        """Load the weights that did best in validation into the model."""
        state = self.state
        if state.best is None or state.best_step == state.step:
            return
        if self.folder is None:
            load_tensors(self.objective, self.best_tensors, self.objective.kept)
            return
        try:
            best = checkpoint.load(self.folder / BEST / checkpoint.name(state.best_step))
        except DamagedError as error:
            say(f"the best weights, of step {state.best_step:,}, are lost, and the last ones are kept: {error}")
            state.best_step, state.best_measured = state.step, state.measured
            return
        load_tensors(self.objective, best.model, self.objective.kept)
