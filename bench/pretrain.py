"""A training step against its peers, in one run: sides interleaved, best of several.

    pip install 'rehead[bench]'
    python bench/pretrain.py

Every side does what a training loop does: forward, backward, clip, fused AdamW; all in training mode with the same
dropout, the same batch, and one table for reading and predicting words. The peers are Hugging Face's BERT (which scores
all positions, masked or not) and GPT-2, of the same width, depth, heads and feed-forward width.

- the machine's peak: the best of many float32 products of matrices, of sizes from 512 to 2048;
- a whole training step of `lab` with a vocabulary of 8,192, as a share of that peak: body, head, clipping, optimizer;
- the body of `small`: forward and backward of its layers, FLOPs as `rehead.model.accounting` counts them;
- what is written by hand though torch has it: the chunked cross-entropy of a language model and Muon, each against
  torch's own. It stays only while it is faster by more than a tenth on common CPUs;
- memory: the highest resident memory of a process that takes two steps, less what it held when the model was made
  (gradients and the optimizer's state are part of it).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from sides import best
from torch import Tensor, nn

from rehead.model import Base, LanguageModel, Model, preset
from rehead.model.accounting import Workload, work
from rehead.model.positions import rotary_cos_sin
from rehead.pretrain.causal import Causal
from rehead.pretrain.masked import Masked
from rehead.pretrain.masking import Masking
from rehead.text.store import TokenStore
from rehead.training.cross_entropy import linear_cross_entropy
from rehead.training.muon import Muon
from rehead.training.objective import Objective
from rehead.training.optimizers import Optimizers, Rates, clip

LENGTH, WIDTH, LAYERS, HEADS, DROPOUT = 256, 200, 4, 2, 0.2
MASKED = 0.15
SHARE_WORDS = 8192
MARK = 4  # stands for [MASK]
LOSSES = [(2048, WIDTH, 50_001), (307, WIDTH, 50_001), (2048, 256, 8192)]  # predictions, width, words
CHUNKS = (256, 512, 1024)  # rows of a chunk of torch's linear_cross_entropy

Step = Callable[[], float]


def batch_of(words: int, rows: int) -> tuple[Tensor, Tensor]:
    """Random ids (B, T), and which of them are masked."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(10, words, (rows, LENGTH), generator=generator)
    return ids, torch.rand(rows, LENGTH, generator=generator) < MASKED


class RandomText(TokenStore):
    """A store of one long document of random words."""

    def __init__(self, words: int, tokens: int) -> None:
        self.ids = np.random.default_rng(0).integers(10, words, tokens)
        self.offsets = np.array([0, tokens], dtype=np.int64)
        self.vocab_size, self.eos = words, 2


def rehead_step(kind: str, words: int, rows: int) -> Step:
    """Make ours: the objective, the optimizers and the clipping of the training loop."""
    model = Model(preset("lab", ntokens=words, tied=True, dropout=DROPOUT), LanguageModel(tied=True))
    store = RandomText(words, 4 * rows * LENGTH)
    size: dict[str, int] = {"time": LENGTH, "batch": rows * LENGTH, "seed": 0}
    objective: Objective = (
        Causal(model, store, store, **size)
        if kind == "causal"
        else Masked(model, store, store, Masking(MARK, (), words, MASKED), **size)
    )
    objective.train()
    optimizers = Optimizers(objective, Rates(), "adamw", sharded=False)
    batch = objective.read(0)

    def step() -> float:
        loss = objective(batch.tensors).losses[kind] / batch.counts[kind]
        loss.backward()
        clip(objective.parameters(), 1.0)
        optimizers.step(0.1)
        return float(loss.detach())

    return step


def peer_stepping(module: nn.Module, loss: Callable[[], Tensor]) -> Step:
    """Make a function that takes one training step of a peer."""
    module.train()
    parameters = list(module.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=True)

    def step() -> float:
        found = loss()
        found.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return float(found.detach())

    return step


def peer_step(kind: str, words: int, rows: int) -> Step:
    """Make the peer's. Raises ImportError where transformers is not installed."""
    import transformers

    ids, masked = batch_of(words, rows)
    if kind == "causal":
        causal = transformers.GPT2LMHeadModel(
            transformers.GPT2Config(
                vocab_size=words,
                n_positions=LENGTH,
                n_embd=WIDTH,
                n_layer=LAYERS,
                n_head=HEADS,
                n_inner=WIDTH,
                resid_pdrop=DROPOUT,
                embd_pdrop=DROPOUT,
                attn_pdrop=DROPOUT,
                use_cache=False,
                bos_token_id=0,
                eos_token_id=1,
            )
        )
        return peer_stepping(causal, lambda: causal(input_ids=ids, labels=ids).loss)
    bert = transformers.BertForMaskedLM(
        transformers.BertConfig(
            vocab_size=words,
            hidden_size=WIDTH,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            intermediate_size=WIDTH,
            hidden_dropout_prob=DROPOUT,
            attention_probs_dropout_prob=DROPOUT,
            max_position_embeddings=LENGTH,
        )
    )
    shown, labels = ids.masked_fill(masked, MARK), ids.masked_fill(~masked, -100)
    return peer_stepping(bert, lambda: bert(input_ids=shown, labels=labels).loss)


def memory(what: str) -> int:
    """Bytes of memory this process holds (VmRSS), or has held at most (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(what))


def memory_of(side: str, rows: int) -> None:
    """Print the extra memory of one side's causal step. To be run in a process of its own."""
    step = {"rehead": rehead_step, "peer": peer_step}[side]("causal", 50_001, rows)
    before = memory("VmRSS")
    step()
    step()
    print(memory("VmHWM") - before)


def peak() -> float:
    """FLOP/s of the machine's best float32 product of matrices."""
    sides: dict[str, Callable[[], object]] = {}
    for size in (512, 1024, 2048):
        left, right, out = torch.randn(size, size), torch.randn(size, size), torch.empty(size, size)
        sides[str(size)] = lambda left=left, right=right, out=out: torch.mm(left, right, out=out)  # type: ignore[misc]
    times = best(sides, 15)
    return max(2 * int(size) ** 3 / seconds for size, seconds in times.items())


def body_of_small(rows: int) -> tuple[Callable[[], None], float]:
    """Forward and backward of the layers of `small`, and the FLOPs it does."""
    config = preset("small")
    layers = Base(config).train().layers
    cos_sin = rotary_cos_sin(torch.arange(LENGTH)[None], config.nhid // config.nhead)
    x = torch.randn(rows, LENGTH, config.nhid, requires_grad=True)

    def run() -> None:
        out = x
        for layer in layers:
            out = layer(out, None, False, cos_sin)
        out.backward(x.detach())
        layers.zero_grad(set_to_none=True)
        x.grad = None

    per_token = work(config, config.classifier(2), Workload(length=LENGTH))[0].body.value
    return run, per_token * rows * LENGTH


def cross_entropies(predictions: int, width: int, words: int) -> dict[str, Callable[[], object]]:
    """Forward and backward of the loss of a language model, ours and torch's."""
    hidden = torch.randn(predictions, width, requires_grad=True)
    weight = (torch.randn(words, width) * width**-0.5).requires_grad_()
    targets = torch.randint(words, (predictions,))

    def torchs(**options: int) -> Callable[[], object]:
        chunked = nn.LinearCrossEntropyOptions(**options)

        def run() -> None:
            F.linear_cross_entropy(hidden, weight, targets, reduction="sum", options=chunked).backward()
            hidden.grad = weight.grad = None

        return run

    def ours() -> None:
        linear_cross_entropy(hidden, weight, None, targets)[0].backward()
        hidden.grad = weight.grad = None

    sides: dict[str, Callable[[], object]] = {"rehead": ours, "its own choice": torchs()}
    return sides | {f"{rows} rows": torchs(batch_chunk_size=rows) for rows in CHUNKS}


def muons() -> dict[str, Callable[[], object]]:
    """A step of Muon on the matrices of `small`, ours and torch's."""
    matrices = [each for each in Base(preset("small")).layers.parameters() if each.dim() == 2]
    for each in matrices:
        each.grad = torch.randn_like(each)
    return {"rehead": Muon(matrices, lr=1e-3).step, "torch": torch.optim.Muon(matrices, lr=1e-3).step}


def against_torch(only: str | None, rounds: int) -> None:
    """Print what is written by hand against torch's own, with whatever setting of it is fastest."""
    works = {
        f"linear cross-entropy, {size[0]:,} predictions of {size[2]:,} words": lambda size=size: cross_entropies(*size)
        for size in LOSSES
    }
    works["Muon, matrices of small"] = muons
    for name, make in works.items():
        if only and only not in name.lower():
            continue
        times = best(make(), rounds)
        ours = times.pop("rehead")
        fastest = min(times, key=lambda side: times[side])
        every = ", ".join(f"{side} {1e3 * seconds:.0f} ms" for side, seconds in times.items())
        print(f"| {name} | {1e3 * ours:.0f} ms | {every} | {times[fastest] / ours:.2f} |")


def shares_of_steps(rows: int, rounds: int, top: float) -> None:
    """Measure whole training steps of `lab`, and print their share of the machine's peak."""
    config = preset("lab", ntokens=SHARE_WORDS, tied=True)
    sides = {kind: rehead_step(kind, SHARE_WORDS, rows) for kind in ("causal", "masked")}
    times = best(sides, rounds)
    for each in work(config, config.classifier(2), Workload(length=LENGTH, masked=MASKED)):
        if each.objective in times:
            seconds = times[each.objective]
            share = (each.body.value + each.head.value) * rows * LENGTH / seconds / top
            rate = rows * LENGTH / seconds
            name = f"{each.objective} step of lab, {SHARE_WORDS:,} words"
            print(f"| {name} | {1e3 * seconds:.0f} ms | {rate:,.0f} tokens/s | {share:.0%} of the peak |")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="A training step against its peers.")
    parser.add_argument("--batch", type=int, default=8, help="rows of a batch")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--memory", choices=["rehead", "peer"], help="measure one side's memory, and nothing else")
    parser.add_argument(
        "--only", help="the works whose name contains this: masked, causal, 16384, share, body, linear, muon, memory"
    )
    parser.add_argument(
        "--threads", type=int, default=torch.get_num_threads(), help="1: measure processor time, for a busy machine"
    )
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    if options.memory:
        memory_of(options.memory, options.batch)
        return
    print(f"{torch.get_num_threads()} threads, torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}")
    top = peak()
    print(f"float32 matmul peak {top / 1e9:.0f} GFLOP/s; batch {options.batch} × {LENGTH}")
    print("| work | rehead | peer | ratio |\n|---|---|---|---|")
    peerless = False
    works = [("masked", 50_001), ("causal", 50_001), ("masked", 16_384)]
    for kind, words in works:
        if options.only and options.only not in f"{kind} {words}":
            continue
        sides: dict[str, Callable[[], object]] = {"rehead": rehead_step(kind, words, options.batch)}
        try:
            sides["peer"] = peer_step(kind, words, options.batch)
        except ImportError:
            peerless = True
        times = best(sides, options.rounds)
        ours, theirs = times["rehead"], times.get("peer", float("nan"))
        print(f"| {kind} LM, {words:,} words | {1e3 * ours:.0f} ms | {1e3 * theirs:.0f} ms | {theirs / ours:.2f} |")
    if not options.only or "share" in options.only:
        shares_of_steps(options.batch, options.rounds, top)
    if not options.only or "body" in options.only:
        run, flops = body_of_small(options.batch)
        seconds = best({"": run}, 4 * options.rounds)[""]
        print(f"| body of small | {1e3 * seconds:.0f} ms | – | {flops / seconds / top:.0%} of the peak |")
    against_torch(options.only, options.rounds)
    if not options.only or "memory" in options.only:
        found = {}
        for side in ("rehead", "peer"):
            command = [sys.executable, __file__, "--memory", side, "--batch", str(options.batch)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            found[side] = int(done.stdout) / 2**20 if done.returncode == 0 else float("nan")
        share = found["rehead"] / found["peer"]
        print(f"| memory of the causal step | {found['rehead']:.0f} MB | {found['peer']:.0f} MB | {share:.2f} |")
    if peerless:
        print("transformers is not installed, so there was no peer. Install it with: pip install 'rehead[bench]'")


if __name__ == "__main__":
    main()
