"""Predict the next token: `python predict.py "the film is"` prints the most probable tokens with probabilities."""

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


def predict(text: str, top: int = 5) -> list[tuple[str, float]]:
    """Return the most probable tokens after a text, which follows an end-of-text token, as in training."""
    ids = [ABOUT["end"], *TOKENIZER.encode(text, add_special_tokens=False).ids]
    [logits] = SESSION.run(
        ["logits"], {"ids": np.array([ids[-ABOUT["longest"] :]], np.int64)}
    )  # (1, tokens, vocabulary)
    share = np.exp(logits[0, -1] - logits[0, -1].max())
    share /= share.sum()
    best = np.argsort(-share)[:top].tolist()
    return [(TOKENIZER.decode([each], skip_special_tokens=False), float(share[each])) for each in best]


if __name__ == "__main__":
    try:
        for text in sys.argv[1:] or (line.decode().rstrip("\r\n") for line in sys.stdin.buffer):
            print(json.dumps(predict(text)))
    except (UnicodeDecodeError, AttributeError):  # AttributeError: it is closed
        sys.exit("Standard input is not UTF-8 text. Convert it (such as with iconv), or give texts as arguments.")
