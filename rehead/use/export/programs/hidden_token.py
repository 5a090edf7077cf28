"""Predict masked words: `python predict.py "a truly [MASK] film"` prints the most probable tokens for every [MASK]."""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

HERE = Path(__file__).parent
ABOUT = json.loads((HERE / "model.json").read_text(encoding="utf-8"))
TOKENIZER = Tokenizer.from_file(str(HERE / "tokenizer.json"))
TOKENIZER.encode_special_tokens = True  # </s> in a text is text, not a special token
SESSION = onnxruntime.InferenceSession(str(HERE / "model.onnx"), providers=["CPUExecutionProvider"])


def predict(text: str, top: int = 5) -> list[list[tuple[str, float]]]:
    """Return the most probable tokens for every [MASK], which stands for the space before it, too.

    The text is not truncated, so that no [MASK] is lost; the model was trained on up to ABOUT["longest"] tokens.
    """
    ids = [ABOUT["end"]]  # as in training
    for number, part in enumerate(text.split("[MASK]")):
        ids += [ABOUT["mask"]] * (number > 0) + TOKENIZER.encode(part.removesuffix(" "), add_special_tokens=False).ids
    [logits] = SESSION.run(["logits"], {"ids": np.array([ids], np.int64)})
    share = np.exp(logits[0] - logits[0].max(1, keepdims=True))
    share /= share.sum(1, keepdims=True)
    hidden = [place for place, each in enumerate(ids) if each == ABOUT["mask"]]
    best = [np.argsort(-share[place])[:top].tolist() for place in hidden]
    return [
        [(TOKENIZER.decode([each], skip_special_tokens=False), float(share[place, each])) for each in row]
        for place, row in zip(hidden, best, strict=True)
    ]


if __name__ == "__main__":
    try:
        for text in sys.argv[1:] or (line.decode().rstrip("\r\n") for line in sys.stdin.buffer):
            print(json.dumps(predict(text)))
    except (UnicodeDecodeError, AttributeError):  # AttributeError: it is closed
        sys.exit("Standard input is not UTF-8 text. Convert it (such as with iconv), or give texts as arguments.")
