"""What a lab has found, `lab.json`, as dataclasses: the only input of the page, with the comparison's results.

Accuracies are fractions from 0 to 1, times are in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rehead.compare.results import Results

FORMAT = 1


@dataclass
class Causality:
    """Question 1: which outputs move when a token is changed, and whether order matters without positions."""

    tokens: list[str]
    changed: int
    "Position of the token that is shown changed."
    replacement: str
    moved: list[list[bool]]
    "moved[i][j]: changing token i moves the output at position j, under the square mask."
    distances: list[float]
    "How far the outputs move when `changed` is: the largest change of a value, by position."
    moved_without_mask: int
    "How many outputs move when `changed` is and every token attends to all."
    shuffled: float
    "Largest difference between the outputs of the shuffled tokens and the shuffled outputs, without positions."
    shuffled_with_positions: float
    "The same with positions."
    positions: list[list[float]]
    "Values of the positional encoding, thinned: (positions, columns)."
    every: int
    "One of so many positions is there."
    columns: list[int]
    "Which columns these are."


@dataclass
class HeadTensor:
    """A tensor that replacing the head dropped or added."""

    name: str
    shape: list[int]
    count: int


@dataclass
class HeadReplacement:
    """Question 2: what replacing the head dropped, added and kept."""

    dropped: list[HeadTensor]
    added: list[HeadTensor]
    kept_tensors: int
    kept_parameters: int
    kept_bytes: int
    changed_bytes: int
    "Bytes of the kept tensors that differ afterwards."
    digest_before: str
    digest_after: str
    "SHA-256 of all bytes of the base."


@dataclass
class CountedPart:
    """Question 3: a line of the parameter table."""

    part: str
    formula: str
    numbers: str
    count: int
    level: str
    of_language_model: bool
    of_classifier: bool


@dataclass
class Mistake:
    """A usual mistake in counting, and how far off it is."""

    mistake: str
    arithmetic: str
    off_by: int
    of: str
    "language model or classifier."


@dataclass
class Counting:
    """Question 3: every parameter."""

    parts: list[CountedPart]
    mistakes: list[Mistake]
    language_model: int
    classifier: int
    checked: bool
    "Whether the live modules hold exactly as many, tensor by tensor."


@dataclass
class Snapshot:
    """What a model wrote and filled in at one moment of its pretraining."""

    fraction: float
    "Of the stage that trains the layers."
    tokens: int
    seconds: float
    measures: dict[str, float]
    written: str | None = None
    "A continuation of the prompt; None if the objective does not teach that."
    filled: list[list[str]] | None = None
    "The most probable words for every masked one."
    probabilities: list[float] | None = None
    "That the model gives to the words that were masked."


@dataclass
class Pretraining:
    """One pretraining run."""

    name: str
    run: str
    objective: str
    tokens: int
    "Through the layers."
    seconds: float
    "Of the stage that trains the layers."
    parameters: int
    held_out: dict[str, float]
    snapshots: list[Snapshot] = field(default_factory=list)


@dataclass
class Attention:
    """Attention weights of every layer and head on the sentence."""

    run: str
    tokens: list[str]
    causal: bool
    layers: list[list[list[list[float]]]]
    "layers[layer][head][query][key]."


@dataclass
class LabFacts:
    """A whole lab."""

    format: int
    sentence: str
    prompt: str
    masked_sentence: str
    masked_words: list[str]
    causality: Causality
    head: HeadReplacement
    counting: Counting
    pretraining: list[Pretraining]
    attention: list[Attention]
    comparison: Results
    notes: list[str]
    "What the planner left out for want of time."
    shape: str
    minutes: float
    seconds: float
    command: str
