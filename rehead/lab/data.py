"""The texts of a lab: the user's own files, or the built-in film reviews, written as ordinary files."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from rehead.lab.options import LabOptions
from rehead.options import read_options
from rehead.text.datasets import load_dataset, read_reviews, to_labelled_data
from rehead.text.documents import ReadOptions
from rehead.text.export import write_splits
from rehead.text.labelled import read_examples

DATA = "data"
TRAIN, VALID, MEASURED = 1_600, 400, 2_000  # built-in reviews; those that are measured on are not the demo's test part
LARGEST, STEPS = 1_600, (16, 4, 1)  # training sets: at most so many examples, and these parts of them
HELD_OUT, MEASURED_SHARE = 0.36, 0.2  # of the user's labelled texts: a fifth measures, a fifth of the rest validates
SENTENCE_WORDS = (8, 16)


@dataclass
class Texts:
    """Where the texts are, as options of the commands that read them."""

    unlabelled: list[str]
    labelled: list[str]
    valid: list[str] | None
    test: list[str] | None


def locate(options: LabOptions) -> Texts:
    """Name the files."""
    if options.text is not None and options.labelled is not None:
        return Texts(options.text, options.labelled, None, None)
    folder = options.out / DATA
    paths = [str(folder / name) for name in ("unlabelled.txt", "train.csv", "valid.csv", "test.csv")]
    return Texts(paths[:1], paths[1:2], paths[2:3], paths[3:4])


def write_built_in(options: LabOptions) -> None:
    """Write the built-in film reviews, unless they are there.

    Reviews to measure on are taken from the unlabelled part, which the demo does not test on, and not pretrained on.
    """
    folder = options.out / DATA
    if options.text is not None or (options.resume and folder.exists()):
        return
    splits = load_dataset("imdb", train=TRAIN, valid=VALID, seed=options.seed)
    known = {review.text: review for review in read_reviews("imdb")[0]}
    measured = to_labelled_data("imdb", (known[text] for text in splits.unlabelled[:MEASURED]))
    splits = dataclasses.replace(splits, test=measured, unlabelled=splits.unlabelled[MEASURED:])
    write_splits(splits, folder, overwrite=options.overwrite)


def training_sizes(options: LabOptions, texts: Texts) -> tuple[int, ...]:
    """Choose training set sizes: what the user says, or parts of what there is."""
    if options.labels is not None:
        return tuple(sorted(set(options.labels)))
    data = read_examples(texts.labelled, read_options(options, ReadOptions), check=False)
    there = len(data) if texts.valid is not None else int(len(data) * (1 - HELD_OUT))
    most, least = min(LARGEST, there), max(4, 2 * len(data.names))
    return tuple(sorted({size for part in STEPS if (size := most // part) >= least} | {most}))


def count_measured(options: LabOptions, texts: Texts) -> int:
    """Count the labelled texts that are measured on."""
    if texts.test is not None:
        return MEASURED
    return round(MEASURED_SHARE * len(read_examples(texts.labelled, read_options(options, ReadOptions), check=False)))


def choose_sentence(options: LabOptions, texts: Texts) -> str:
    """Choose the sentence: the reader's, or the first of moderate length in the labelled texts."""
    if options.sentence is not None:
        return " ".join(options.sentence.split())
    data = read_examples(texts.labelled, read_options(options, ReadOptions), check=False)
    least, most = SENTENCE_WORDS
    for text in data.texts:
        for each in text.replace("!", ".").replace("?", ".").split("."):
            if least <= len(words := each.split()) <= most:
                return " ".join(words)
    return " ".join(data.texts[0].split()[:most])


def with_masks(sentence: str) -> tuple[str, list[str]]:
    """Put a mask in the place of two words of the sentence: the longest of its first and of its second half."""
    from rehead.text.tokenizer import MASK

    words = sentence.split()
    middle = max(1, len(words) // 2)
    halves = [range(middle), range(middle, len(words))]
    places = sorted({max(half, key=lambda place: len(words[place])) for half in halves if len(half)})
    bare = [words[place].strip(".,;:!?\"'()") or words[place] for place in places]
    masked = [MASK if place in places else word for place, word in enumerate(words)]
    return " ".join(masked), bare


def prompt_of(sentence: str) -> str:
    """Give the beginning of the sentence, for the models to continue."""
    words = sentence.split()
    return " ".join(words[: max(2, len(words) // 3)])


def path_of(options: LabOptions, name: str) -> Path:
    """Give the directory of a pretraining run."""
    return options.out / name
