"""The objective of fine-tuning: labelled documents → cross-entropy (one yes or no per label, where there are several).

What a step costs depends on what is trained:

    vectors   the base is frozen: every document is pooled once, and a step is a linear layer on some of these vectors
    bag       no layer takes part (there is none, or all are frozen and the identity): a document is a sum of rows, and
              the gradient holds the touched rows alone
    padded    layers read documents of about the same length, padded to the longest

Where the head reads a mean of hidden states, it is given that mean standardised, each value by its mean and spread over
the training documents as the base gives them at first: a bag's values are hundredths, and a head that had to grow to
meet them would not be done before the base has bent. `fold` afterwards puts the standardising into the head's weights.

Shapes: B documents, P pieces of documents, H hidden width, K classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rehead.finetune.linear_start import solve_head
from rehead.finetune.options import Freeze
from rehead.model.grams import each_once, find_grams, rows_of
from rehead.model.heads import ClassifierHead
from rehead.model.model import Model
from rehead.model.reading import Reading, cut, is_bag, pooled_parts
from rehead.text.document_batches import DocumentBatches
from rehead.text.order import part_of, places, shuffled
from rehead.training.bags import bag_readings, bag_sums
from rehead.training.objective import Batch, Measures, Objective, ParameterSettings, Sums

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

ORDER = 51  # what a random choice is for, as part of its key
HELD_OUT_TOKENS = 16_384  # in a batch of validation
FEWEST_STEPS = 8  # in an epoch, where there are few documents
DOCUMENTS = 32  # in a step, or as many tokens as these have on average

Mode = Literal["vectors", "bag", "padded"]


@dataclass
class Documents:
    """Labelled documents as numbers."""

    ids: list[Ints]
    targets: NDArray[Any]
    "(N,) of class numbers, or (N, K) of yes and no."

    def __len__(self) -> int:
        return len(self.ids)


@dataclass
class Held:
    """A batch of held-out documents, in pieces."""

    parts: list[Ints]
    owner: Ints
    "Which of the batch's documents each piece is of: (P,)."
    documents: Ints
    "Which documents of the held-out part these are: (B,)."


class Classify(Objective):
    """Tell the classes of documents apart."""

    shift: Tensor
    factor: Tensor

    name = "classify"
    weights = MappingProxyType({"classify": 1.0})

    def __init__(
        self,
        model: Model,
        train: Documents,
        valid: Documents,
        *,
        reading: Reading,
        freeze: Freeze,
        batch: int | None = None,
        class_weights: NDArray[Any] | None = None,
        layer_decay: float = 1.0,
        pad: int = 0,
        seed: int = 0,
        keep_head: bool = False,
    ) -> None:
        """Train a model that has a classifier head.

        `batch` is in tokens. `class_weights` (K,): how much an example of each class counts (that has the label, of
        several). Of every next layer downwards the rate is `layer_decay` times that of the one above.
        `keep_head`: the head is a good one already; otherwise it starts anew.
        """
        super().__init__(model)
        self.unfreeze = 0.0
        "After every such fraction of the run one more layer begins to move, from the top; 0: all move from the start."
        if not isinstance(model.head, ClassifierHead):
            raise TypeError("fine-tuning needs a model with a classifier head")
        self.multilabel = model.head.config.multilabel
        self.train_documents, self.valid, self.reading, self.freeze, self.seed = train, valid, reading, freeze, seed
        self.layer_decay = layer_decay
        self.class_weights = None if class_weights is None else torch.from_numpy(class_weights.astype(np.float32))
        model.eval()  # whether a layer is the identity is told at rest
        self.longest = reading.limit(model.base)
        self.mode: Mode = self._mode()
        self.pieces, parts = cut(train.ids, self.longest, reading.long)
        self.lengths = np.array([len(each) for each in parts], np.int64)
        self.parts: list[Ints] = parts
        vectors = self._standardise()
        if keep_head:
            self._take_up()
        elif vectors is not None:
            self._start(vectors)
        self.initial_may_be_best = keep_head or vectors is not None
        self.slots = rows_of(model.base)
        tokens = int(self.lengths.sum())
        if self.mode == "padded":
            longest = max(1, int(self.lengths.max()))
            usual = DOCUMENTS * tokens // len(parts)
            budget = max(longest, min(usual, tokens // FEWEST_STEPS) if batch is None else batch)
            self.batches = DocumentBatches(parts, budget=budget, longest=longest, long="head", pad=pad, seed=seed)
        few = min(DOCUMENTS, max(1, len(parts) // FEWEST_STEPS))
        self.per_step = few if batch is None else max(1, round(batch * len(parts) / max(1, tokens)))
        self.held: list[Batch] | None = None

    def _mode(self) -> Mode:
        assert isinstance(self.model.head, ClassifierHead)  # noqa: S101 (for the type checker)
        if self.freeze == "base" and self.model.head.query is None:
            return "vectors"
        base, mean = self.model.base, self.model.head.config.pooling in ("mean", "distinct")
        return "bag" if mean and is_bag(base) and (not len(base.layers) or self.freeze == "layers") else "padded"

    def _standardise(self) -> NDArray[Any] | None:
        """Measure how the pooled vectors of the training documents are spread, where that is to be evened out.

        Gives them standardised: (P, H).
        """
        head = self._head()
        wide = head.linear.in_features
        vectors: NDArray[np.float32] | None = None
        even = head.centre is None  # a head that reads directions does this itself
        if self.mode == "vectors" or (even and head.config.pooling == "mean" and self.model.config.norm == "pre"):
            vectors = pooled_parts(self.model, self.parts)
        shift, factor = np.zeros(wide, np.float32), np.ones(wide, np.float32)
        if vectors is not None and even:
            shift = vectors.mean(0)
            spread = vectors.std(0)
            # A value that hardly differs between documents must not be blown up.
            factor = 1 / np.maximum(spread, 0.1 * spread.mean() + 1e-6)
        self.register_buffer("shift", torch.from_numpy(shift), persistent=False)
        self.register_buffer("factor", torch.from_numpy(factor.astype(np.float32)), persistent=False)
        self.vectors = torch.from_numpy(vectors) if self.mode == "vectors" and vectors is not None else None
        return None if vectors is None else (vectors - shift) * factor

    def _start(self, vectors: NDArray[Any]) -> None:
        """Begin with the head that fits the standardised vectors best."""
        linear = self._head().linear
        truth = self.train_documents.targets[self.pieces.document]
        balanced = self.class_weights is not None
        weight, bias = solve_head(vectors, truth, len(linear.bias), self.seed, balanced=balanced)
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(weight))
            linear.bias.copy_(torch.from_numpy(bias))

    def _take_up(self) -> None:
        """Have the head, which reads vectors as they are, read standardised ones, and score the same."""
        linear = self._head().linear
        with torch.no_grad():
            linear.bias.add_(linear.weight @ self.shift)
            linear.weight.div_(self.factor)

    def fold(self) -> None:
        """Have the head, which reads standardised vectors, read them as they are, and score the same."""
        linear = self._head().linear
        with torch.no_grad():
            linear.weight.mul_(self.factor)
            linear.bias.sub_(linear.weight @ self.shift)
            self.shift.zero_()
            self.factor.fill_(1)

    def _head(self) -> ClassifierHead:
        assert isinstance(self.model.head, ClassifierHead)  # noqa: S101 (for the type checker)
        return self.model.head

    def train(self, mode: bool = True) -> Classify:
        """Frozen parts stay at rest: nothing is dropped in them, and layers that are the identity are skipped."""
        super().train(mode)
        if self.freeze == "base":
            self.model.base.eval()
        elif self.freeze == "layers":
            self.model.base.layers.eval()
        return self

    def steps_in_epoch(self) -> float:
        """How many steps show every document once."""
        return len(self.batches) if self.mode == "padded" else len(self.parts) / self.per_step

    def read(self, step: int, part: int = 0, parts: int = 1) -> Batch:
        """Read one part of a step's documents."""
        if self.mode == "padded":
            batch = self.batches.read(step, part, parts)
            tensors = {"ids": torch.from_numpy(batch.ids), "keep": torch.from_numpy(batch.keep)}
            return self._batch(
                tensors, self.train_documents, self.pieces.document[batch.documents], int(batch.keep.sum())
            )
        epochs, positions = np.divmod(places(step, self.per_step, part, parts), len(self.parts))
        chosen = shuffled(positions, len(self.parts), self.seed, ORDER, epochs)
        tokens = int(self.lengths[chosen].sum())
        if self.vectors is not None:
            tensors = {"vectors": self.vectors[torch.from_numpy(chosen)]}
        else:
            tensors = self._bag([self.parts[each] for each in chosen])
        return self._batch(tensors, self.train_documents, self.pieces.document[chosen], tokens)

    def _bag(self, parts: Sequence[Ints]) -> dict[str, Tensor]:
        grams = find_grams(parts, self.model.config, self.slots)
        lengths = torch.tensor([len(each) for each in parts])
        if self._head().config.pooling == "distinct":
            grams = each_once(grams, self.model.config)
            lengths = torch.from_numpy(np.bincount(grams.document, minlength=len(parts)))
        fields = bag_readings(grams, len(parts), self.model.config.ntokens)
        tensors = {name: torch.from_numpy(np.ascontiguousarray(each)) for name, each in fields.items()}
        return tensors | {"lengths": lengths}

    def _batch(self, tensors: dict[str, Tensor], documents: Documents, chosen: Ints, tokens: int) -> Batch:
        targets = torch.from_numpy(documents.targets[chosen])
        count = float(self._weights_of(targets).sum())
        return Batch({**tensors, "targets": targets}, {"classify": count}, tokens)

    def held_out(self, part: int = 0, parts: int = 1) -> Iterator[Batch]:
        """Give the held-out documents, all pieces of one in one batch."""
        if self.held is None:
            made = (self._held(each) for each in self._held_groups(part, parts))
            if self.mode == "padded":  # not kept: they would be as large as the text
                yield from made
                return
            self.held = list(made)
        yield from self.held

    def _held_groups(self, part: int, parts: int) -> Iterator[Held]:
        """Put held-out documents of about the same length together; every process gets as many groups."""
        pieces, cut_parts = cut(self.valid.ids, self.longest, self.reading.long)
        begins = np.searchsorted(pieces.document, np.arange(len(self.valid) + 1))
        tokens = np.array([sum(map(len, cut_parts[a:b])) for a, b in pairwise(begins)], np.int64)
        order = np.argsort(tokens, kind="stable")
        groups = np.split(order, np.flatnonzero(np.diff(np.cumsum(tokens[order]) // HELD_OUT_TOKENS)) + 1)
        for group in groups if len(order) else []:
            mine = group[part_of(len(group), part, parts)]
            which = [np.arange(begins[each], begins[each + 1]) for each in mine]
            owner = np.repeat(np.arange(len(mine)), [len(each) for each in which])
            yield Held([cut_parts[each] for some in which for each in some], owner, mine)

    def _held(self, group: Held) -> Batch:
        if self.mode == "vectors":
            tensors = {"vectors": torch.from_numpy(pooled_parts(self.model, group.parts))}
        elif self.mode == "bag":
            tensors = self._bag(group.parts)
        else:
            lengths = np.array([len(each) for each in group.parts], np.int64)
            ids = np.zeros((len(lengths), int(lengths.max(initial=1))), np.int64)
            for row, text in zip(ids, group.parts, strict=True):
                row[: len(text)] = text
            keep = np.arange(ids.shape[1]) < lengths[:, None]
            tensors = {"ids": torch.from_numpy(ids), "keep": torch.from_numpy(keep)}
        tensors["owner"] = torch.from_numpy(group.owner)
        return self._batch(tensors, self.valid, group.documents, sum(map(len, group.parts)))

    def forward(self, tensors: dict[str, Tensor]) -> Sums:
        """Sum the cross-entropy over documents (and over labels, where there are several)."""
        targets, head = tensors["targets"], self._head()
        logits = head.score((self._pooled(tensors) - self.shift) * self.factor).float()  # (P, K)
        if "owner" in tensors:  # the scores of a document are the mean of those of its pieces
            counts = torch.bincount(tensors["owner"], minlength=len(targets))[:, None]
            logits = logits.new_zeros(len(targets), logits.shape[1]).index_add_(0, tensors["owner"], logits) / counts
        losses = _entropy(logits, targets) * self._weights_of(targets)
        sums = {"classify": losses.sum()}
        return Sums(sums) if self.training else Sums(sums, self._counted(logits, targets))

    def _pooled(self, tensors: dict[str, Tensor]) -> Tensor:
        if "vectors" in tensors:
            return tensors["vectors"]
        if self.mode == "bag":
            return bag_sums(self.model.base, tensors) / tensors["lengths"].clamp_min(1)[:, None]
        ids, keep = tensors["ids"], tensors["keep"]
        if nothing := not len(ids):  # this part got no document: read a token that counts for nothing
            ids, keep = ids.new_zeros(1, 1), keep.new_ones(1, 1)
        # Padding is behind the text, and under the square mask nothing sees what is behind it: no other mask is needed.
        causal = self.model.reads_causally
        hidden = self.model.base(ids, None if causal else keep, causal=causal)
        pooled = self._head().pool(hidden, keep)
        return pooled[:0] if nothing else pooled

    def _weights_of(self, targets: Tensor) -> Tensor:
        """How much each loss counts: (B,), or (B, K) where there are several labels."""
        if self.class_weights is None:
            return torch.ones(targets.shape, device=targets.device)
        weights = self.class_weights.to(targets.device)
        return torch.where(targets > 0, weights, 1.0) if self.multilabel else weights[targets]

    def _counted(self, logits: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Count what accuracy and macro-F1 are made of."""
        classes = logits.shape[1]
        if self.multilabel:
            said, real = logits > 0, targets > 0
        else:
            said = F.one_hot(logits.argmax(1), classes).bool()
            real = F.one_hot(targets, classes).bool()
        found = {"documents": torch.tensor(float(len(targets))), "right": (said == real).all(1).sum()}
        for name, counts in (("hits", (said & real).sum(0)), ("said", said.sum(0)), ("real", real.sum(0))):
            found |= {f"{name} {place}": count for place, count in enumerate(counts)}
        return found

    def report(self, measures: Measures) -> dict[str, float]:
        """Say the loss, the accuracy (all labels right), and the mean of the classes' F1."""
        metrics = measures.metrics
        if not metrics.get("documents"):
            return {}
        scores = []
        for place in range(self._head().config.classes):
            hits, said, real = (metrics[f"{name} {place}"] for name in ("hits", "said", "real"))
            if said + real:
                scores.append(2 * hits / (said + real))
        return {
            "loss": measures.mean("classify"),
            "accuracy": metrics["right"] / metrics["documents"],
            "macro_f1": sum(scores) / len(scores) if scores else float("nan"),
        }

    def selection_loss(self, found: Mapping[str, float]) -> float:
        """Go by accuracy (where classes are to count alike: by macro-F1), and by the loss where that is the same.

        By the loss alone where there are several labels.
        """
        loss = found.get("loss", float("inf"))
        right = "accuracy" if self.class_weights is None else "macro_f1"
        if self.multilabel or right not in found:
            return loss
        return 1 - found[right] + 1e-6 * min(loss, 100.0)

    def row_tables(self) -> list[nn.Parameter]:
        """Name the table of n-grams, and that of tokens where no layer reads them."""
        base = self.model.base
        if self.freeze in ("base", "embeddings"):
            return []
        tables: list[nn.Module] = [] if base.ngrams is None else [base.ngrams]
        tables += [base.embedding] * (self.mode == "bag")
        return [each for table in tables for each in table.parameters()]

    def idle(self) -> list[nn.Parameter]:
        """Name what is frozen."""
        base = self.model.base
        layers = list(base.layers.parameters())
        if self.freeze == "base":
            return list(base.parameters())
        if self.freeze == "layers":
            return layers
        if self.freeze == "embeddings":
            of_layers = set(layers)
            return [each for each in base.parameters() if each not in of_layers]
        return []

    def constant(self) -> list[nn.Parameter]:
        """What is frozen is so from the first step to the last."""
        return self.idle()

    def parameter_settings(self) -> dict[nn.Parameter, ParameterSettings]:
        """The head moves first and fastest, then the layers from the top, the embeddings last and slowest."""
        base, frozen = self.model.base, set(self.idle())
        of_layers = [list(layer.parameters()) for layer in reversed(base.layers)]
        known = {id(each) for layer in of_layers for each in layer}
        groups = [*of_layers, [each for each in base.parameters() if id(each) not in known]]
        settings: dict[nn.Parameter, ParameterSettings] = {}
        depth = 0
        for group in groups:
            moving = [each for each in group if each not in frozen]
            if moving:
                depth += 1
                settings |= dict.fromkeys(moving, ParameterSettings(self.layer_decay**depth, self.unfreeze * depth))
        return settings


def _entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Loss of each document, (B,), or of each of its labels, (B, K)."""
    if targets.dim() == 2:
        return F.binary_cross_entropy_with_logits(logits, targets.float(), reduction="none")
    return F.cross_entropy(logits, targets, reduction="none")
