"""Classify texts: `python predict.py "What a film!"`, or one text per line on standard input; prints JSON lines."""

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

HERE = Path(__file__).parent
ABOUT = json.loads((HERE / "model.json").read_text(encoding="utf-8"))
TOKENIZER = Tokenizer.from_file(str(HERE / "tokenizer.json")) if "ids" in ABOUT["inputs"] else None
if TOKENIZER is not None:
    TOKENIZER.encode_special_tokens = True  # </s> in a text is text, not a special token
sys.path.insert(0, str(HERE))
# Which words and character n-grams count, if the model reads the text itself: their hashes, ascending.
VOCABULARY = dict(np.load(HERE / "vocabulary.npz")) if (HERE / "vocabulary.npz").exists() else {}
if VOCABULARY:
    import text_ngrams  # type: ignore[import-not-found] # beside this program
if ABOUT["bases"]:
    import base_tokens  # type: ignore[import-not-found] # beside this program, too
FIND = {name: base_tokens.open_finder(HERE / each["file"], each) for name, each in ABOUT["bases"].items()}
SESSION = onnxruntime.InferenceSession(str(HERE / "model.onnx"), providers=["CPUExecutionProvider"])


def read(text: str) -> dict[str, Any]:
    """Find the tokens of a text, and the n-grams of the vocabulary that it has: 1 + log of the count of each."""
    inputs: dict[str, Any] = {name: np.array(find([text])[0], np.int64) for name, find in FIND.items()}
    if TOKENIZER is not None:
        inputs["ids"] = np.array(TOKENIZER.encode(text, add_special_tokens=False).ids, np.int64)
    for kind, keys in VOCABULARY.items():
        find = text_ngrams.word_ngrams if kind == "words" else text_ngrams.character_ngrams
        found = find(text_ngrams.code_points([text])).key
        places, counts = np.unique(np.searchsorted(keys, found)[np.isin(found, keys)], return_counts=True)
        inputs |= {kind: places, f"{kind}_counts": (1 + np.log(counts)).astype(np.float32)}
    return inputs


def predict(texts: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Predict the labels of each text, with the probability of every label; None for a blank text."""
    for text in texts:
        if not text.strip():
            yield {"labels": None, "probabilities": None}
            continue
        [given] = SESSION.run(["probabilities"], read(text))
        reached = given / ABOUT["thresholds"] + ABOUT["at_least_one"] * (given == given.max())
        chosen = reached >= 1 if ABOUT["multilabel"] else np.arange(len(given)) == reached.argmax()
        labels = [name for name, yes in zip(ABOUT["labels"], chosen, strict=True) if yes]
        yield {"labels": labels, "probabilities": dict(zip(ABOUT["labels"], given.tolist(), strict=True))}


if __name__ == "__main__":
    try:
        for found in predict(sys.argv[1:] or (line.decode().rstrip("\r\n") for line in sys.stdin.buffer)):
            print(json.dumps(found))
    except (UnicodeDecodeError, AttributeError):  # AttributeError: it is closed
        sys.exit("Standard input is not UTF-8 text. Convert it (such as with iconv), or give texts as arguments.")
