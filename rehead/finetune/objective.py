"""The objective of fine-tuning by gradient: cross-entropy of labelled documents (binary per label if multilabel).

What a step costs depends on the network under the head (`rehead.finetune.trainable`), by the view that reads it:

    bag               a document is a sum of rows, and the gradient holds the touched rows alone
    layers, encoder   documents of about the same length are padded to the longest

Where the head reads a mean, it is given standardised vectors, by the mean and deviation of each value over the training
documents before the first step: a bag's values are hundredths, and a head that had to grow to that scale would not be
done before the base has moved. `fold` afterwards puts the standardisation into the head's weights.

Shapes: B documents, P pieces of documents, H hidden width, K classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rehead.finetune.linear_start import solve_head
from rehead.finetune.options import Freeze, Metric
from rehead.finetune.trainable import OwnNetwork, Trainable
from rehead.model.model import Model
from rehead.runs.scoring import classifier_head
from rehead.text.document_batches import DocumentBatches
from rehead.text.order import shard_slice, shuffled, step_indices
from rehead.text.random_streams import Stream
from rehead.training.objective import Batch, Measures, Objective, ParameterSettings, Sums

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

HELD_OUT_TOKENS = 16_384  # in a batch of validation
FEWEST_STEPS = 8  # in an epoch, where there are few documents


@dataclass
class Documents:
    """Labelled documents as numbers."""

    ids: list[Any]
    "Token ids of each document, as the network under the head takes them."
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
    kept = ("model.", "network.")
    weights = MappingProxyType({"classify": 1.0})

    def __init__(
        self,
        model: Model,
        train: Documents,
        valid: Documents,
        *,
        freeze: Freeze,
        batch: int | None = None,
        class_weights: NDArray[Any] | None = None,
        metric: Metric = "accuracy",
        layer_decay: float = 1.0,
        weight_decay: float = 0.0,
        pad: int = 0,
        seed: int = 0,
        keep_head: bool = False,
        network: Trainable | None = None,
    ) -> None:
        """Train a model that has a classifier head on a neural view, or on the encoder that is `network`.

        `batch` is in tokens. `class_weights` (K,): weight of the examples of each class (of those with the label, if
        multilabel). `metric` says by what the best epoch is chosen. Each layer learns at `layer_decay` times the rate
        of the one above it; `weight_decay` is that of an encoder's matrices. `keep_head`: the head is trained already;
        otherwise it is initialised here.
        """
        super().__init__(model)
        self.unfreeze = 0.0
        "After every such fraction of the run one more layer begins to move, from the top; 0: all move from the start."
        self.network = OwnNetwork(model, pad) if network is None else network
        self.multilabel = classifier_head(model).config.multilabel
        self.train_documents, self.valid, self.freeze, self.seed = train, valid, freeze, seed
        self.layer_decay, self.weight_decay = layer_decay, weight_decay
        self.metric = metric
        self.class_weights = None if class_weights is None else torch.from_numpy(class_weights.astype(np.float32))
        self.owners, self.parts = self.network.cut(train.ids)
        "Pieces of the training documents, and which document each is of: (P,)."
        self.lengths = np.array([len(each) for each in self.parts], np.int64)
        vectors = self._standardise()
        if keep_head:
            self._take_up()
        elif vectors is not None:
            self._start(vectors)
        self.initial_may_be_best = keep_head or vectors is not None
        tokens, count, most = int(self.lengths.sum()), len(self.parts), self.network.documents
        if self.layers:
            longest = max(1, int(self.lengths.max()))
            budget = max(longest, min(most * tokens // count, tokens // FEWEST_STEPS) if batch is None else batch)
            plan: dict[str, Any] = {"budget": budget, "longest": longest, "long": "head", "pad": self.network.pad}
            self.batches = DocumentBatches(self.parts, **plan, seed=seed)
        few = min(most, max(1, count // FEWEST_STEPS))
        self.per_step = few if batch is None else max(1, round(batch * count / max(1, tokens)))
        self.held: list[Batch] | None = None

    @property
    def layers(self) -> bool:
        """Whether layers read, so that batches are padded."""
        return self.network.padded

    def _standardise(self) -> NDArray[Any] | None:
        """Standardise the pooled vectors of the training documents, (P, H), where the head reads a mean."""
        wide = self.network.columns
        vectors: NDArray[np.float32] | None = None
        shift, factor = np.zeros(wide, np.float32), np.ones(wide, np.float32)
        if self.network.standardise:
            vectors = self.network.vectors(self.parts)
            shift = vectors.mean(0)
            deviation = vectors.std(0)
            # A value that hardly differs between documents must not be blown up.
            factor = 1 / np.maximum(deviation, 0.1 * deviation.mean() + 1e-6)
        self.register_buffer("shift", torch.from_numpy(shift), persistent=False)
        self.register_buffer("factor", torch.from_numpy(factor.astype(np.float32)), persistent=False)
        return None if vectors is None else (vectors - shift) * factor

    def _start(self, vectors: NDArray[Any]) -> None:
        """Initialise the head with the best linear classifier on the standardised vectors."""
        weight, bias = self._linear()
        truth = self.train_documents.targets[self.owners]
        balanced = self.class_weights is not None
        found = solve_head(vectors, truth, len(bias), self.seed, balanced=balanced)
        with torch.no_grad():
            weight.copy_(torch.from_numpy(found[0]))
            bias.copy_(torch.from_numpy(found[1]))

    def _take_up(self) -> None:
        """Have the head, which reads vectors as they are, read standardised ones, and score the same."""
        weight, bias = self._linear()
        with torch.no_grad():
            bias.add_((weight * self.shift).sum(1))  # no matrix product, which autocast would round
            weight.div_(self.factor)

    def fold(self) -> None:
        """Have the head, which reads standardised vectors, read them as they are, and score the same."""
        weight, bias = self._linear()
        with torch.no_grad():
            weight.mul_(self.factor)
            bias.sub_((weight * self.shift).sum(1))
            self.shift.zero_()
            self.factor.fill_(1)

    def _linear(self) -> tuple[nn.Parameter, nn.Parameter]:
        """The weight (K, H) and bias (K,) of the head that is trained."""
        head = classifier_head(self.model)
        return head.of(self.network.name).weight, head.bias

    def train(self, mode: bool = True) -> Classify:
        """Frozen layers stay in evaluation mode: nothing is dropped in them."""
        super().train(mode)
        if self.freeze == "layers":
            for layer in self.network.layer_modules():
                layer.eval()
        return self

    def steps_in_epoch(self) -> float:
        """How many steps show every document once."""
        return len(self.batches) if self.layers else len(self.parts) / self.per_step

    def read(self, step: int, part: int = 0, parts: int = 1) -> Batch:
        """Read one part of a step's documents."""
        if self.layers:
            batch = self.batches.read(step, part, parts)
            tensors = {"ids": torch.from_numpy(batch.ids), "keep": torch.from_numpy(batch.keep)}
            return self._batch(tensors, self.train_documents, self.owners[batch.documents], int(batch.keep.sum()))
        epochs, positions = np.divmod(step_indices(step, self.per_step, part, parts), len(self.parts))
        chosen = shuffled(positions, len(self.parts), self.seed, Stream.EXAMPLE_ORDER, epochs)
        tokens = int(self.lengths[chosen].sum())
        tensors = self.network.collate([self.parts[each] for each in chosen])
        return self._batch(tensors, self.train_documents, self.owners[chosen], tokens)

    def _batch(self, tensors: dict[str, Tensor], documents: Documents, chosen: Ints, tokens: int) -> Batch:
        targets = torch.from_numpy(documents.targets[chosen])
        count = float(self._weights_of(targets).sum())
        return Batch({**tensors, "targets": targets}, {"classify": count}, tokens)

    def held_out(self, part: int = 0, parts: int = 1) -> Iterator[Batch]:
        """Give the held-out documents, all pieces of one in one batch."""
        if self.held is None:
            made = (self._held(each) for each in self._held_groups(part, parts))
            if self.layers:  # not kept: they would be as large as the text
                yield from made
                return
            self.held = list(made)
        yield from self.held

    def _held_groups(self, part: int, parts: int) -> Iterator[Held]:
        """Put held-out documents of about the same length together; every process gets as many groups."""
        owners, cut_parts = self.network.cut(self.valid.ids)
        begins = np.searchsorted(owners, np.arange(len(self.valid) + 1))
        tokens = np.array([sum(map(len, cut_parts[a:b])) for a, b in pairwise(begins)], np.int64)
        order = np.argsort(tokens, kind="stable")
        groups = np.split(order, np.flatnonzero(np.diff(np.cumsum(tokens[order]) // HELD_OUT_TOKENS)) + 1)
        for group in groups if len(order) else []:
            mine = group[shard_slice(len(group), part, parts)]
            which = [np.arange(begins[each], begins[each + 1]) for each in mine]
            owner = np.repeat(np.arange(len(mine)), [len(each) for each in which])
            yield Held([cut_parts[each] for some in which for each in some], owner, mine)

    def _held(self, group: Held) -> Batch:
        tensors = self.network.collate(group.parts) | {"owner": torch.from_numpy(group.owner)}
        return self._batch(tensors, self.valid, group.documents, sum(map(len, group.parts)))

    def forward(self, tensors: dict[str, Tensor]) -> Sums:
        """Sum the cross-entropy over documents (and over labels, where there are several)."""
        targets = tensors["targets"]
        vectors = (self.network.pool(tensors) - self.shift) * self.factor
        logits = classifier_head(self.model)(vectors, self.network.name).float()  # (P, K)
        if "owner" in tensors:  # the scores of a document are the mean of those of its pieces
            counts = torch.bincount(tensors["owner"], minlength=len(targets))[:, None]
            logits = logits.new_zeros(len(targets), logits.shape[1]).index_add_(0, tensors["owner"], logits) / counts
        losses = _entropy(logits, targets) * self._weights_of(targets)
        sums = {"classify": losses.sum()}
        return Sums(sums) if self.training else Sums(sums, self._counted(logits, targets))

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
        for place in range(classifier_head(self.model).config.classes):
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
        balanced = self.metric == "macro-f1" or self.class_weights is not None
        right = "macro_f1" if balanced else "accuracy"
        if self.multilabel or right not in found:
            return loss
        return 1 - found[right] + 1e-6 * min(loss, 100.0)

    def row_tables(self) -> list[nn.Parameter]:
        """Name the tables that a step touches in a few rows only."""
        if self.freeze == "embeddings":
            return []
        return [each for table in self.network.row_tables() for each in table.parameters()]

    def idle(self) -> list[nn.Parameter]:
        """Name what is frozen, and what no document depends on."""
        *layers, embeddings = depths = self.network.depths()
        used = {id(each) for group in depths for each in group}
        unread = [each for each in (*self.model.base.parameters(), *self._of_network()) if id(each) not in used]
        if self.freeze == "layers":
            return [*unread, *(each for layer in layers for each in layer)]
        return [*unread, *embeddings] if self.freeze == "embeddings" else unread

    def _of_network(self) -> list[nn.Parameter]:
        return list(self.network.parameters()) if isinstance(self.network, nn.Module) else []

    def constant(self) -> list[nn.Parameter]:
        """What is frozen is so from the first step to the last."""
        return self.idle()

    def parameter_settings(self) -> dict[nn.Parameter, ParameterSettings]:
        """The head moves first and fastest, then the layers from the top, the embeddings last and slowest."""
        frozen = set(self.idle())
        brought = {id(each) for each in self._of_network()}
        *layers, _ = depths = self.network.depths()
        decayed = {id(each) for layer in layers for each in layer if each.dim() > 1 and id(each) in brought}
        settings: dict[nn.Parameter, ParameterSettings] = {}
        depth = 0
        for group in depths:
            moving = [each for each in group if each not in frozen]
            depth += bool(moving)
            for each in moving:
                decay = self.weight_decay if id(each) in decayed else None  # of our own layers: that of their kind
                settings[each] = ParameterSettings(self.layer_decay**depth, self.unfreeze * depth, decay)
        return settings


def _entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Loss of each document, (B,), or of each of its labels, (B, K)."""
    if targets.dim() == 2:
        return F.binary_cross_entropy_with_logits(logits, targets.float(), reduction="none")
    return F.cross_entropy(logits, targets, reduction="none")
