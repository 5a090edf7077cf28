"""Texts in, labels out: documents per second and the time of one text, in one run, sides interleaved, best of several.

    pip install 'rehead[bench,demo,export]'
    rehead data export imdb --out imdb
    python bench/predict.py runs/classifier imdb/train.csv imdb/valid.csv

The whole path, from text to probabilities, of a classifier that `rehead finetune` made, against:

- `pipeline("text-classification")` of Hugging Face with a BERT of the same shape (width, layers, heads, feed-forward,
  vocabulary; beside a classifier without layers: the four layers of `small`, at its width; weights are random, since
  they do not matter for speed) and the same tokenizer: called with the list of texts, which it reads one after the
  other by default; with `batch_size=32`; and so with the texts sorted by length first, which is the best that can be
  done with it;
- the same classifier out of `rehead export --format onnx-int8`, which reads one text at a time, as its program does;
- TF-IDF with logistic regression, which is the fastest of all and often nearly as good.

The peer reads as many tokens of a text as the classifier does, but 512 at most: that is all a BERT has positions for.
With one thread (unless `--threads` says more) texts per second are by the time of the processor. The time of one text
is what somebody waits for it, by the clock, over `--alone` texts: on a machine that has other work, it is longer.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sides import best

from rehead.model.config import preset
from rehead.runs.scoring import open_views
from rehead.text.labelled import read_examples
from rehead.use.labeller import Labeller
from rehead.views.bag import BagView
from rehead.views.layers import LayersView

BATCH, POSITIONS = 32, 512

Call = Callable[[list[str]], object]


def peer(labeller: Labeller) -> Any:  # noqa: ANN401 (untyped)
    """Make a pipeline with a BERT of the classifier's width and tokenizer, and of its layers, or those of `small`."""
    import transformers

    config, tokenizer = labeller.run.model.config, labeller.run.tokenizer
    assert tokenizer is not None
    layers = config if config.nlayers else preset("small", nhid=config.nhid)
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save(Path(folder) / "tokenizer.json")
        fast = transformers.PreTrainedTokenizerFast(
            tokenizer_file=str(Path(folder) / "tokenizer.json"),
            pad_token=tokenizer.pieces([tokenizer.pad])[0],
            eos_token=tokenizer.pieces([tokenizer.eos])[0],
            model_max_length=POSITIONS,
        )
    model = transformers.BertForSequenceClassification(
        transformers.BertConfig(
            vocab_size=config.ntokens,
            hidden_size=config.nhid,
            num_hidden_layers=layers.nlayers,
            num_attention_heads=layers.nhead,
            intermediate_size=layers.nff,
            max_position_embeddings=POSITIONS,
            num_labels=len(labeller.names),
            pad_token_id=tokenizer.pad,
        )
    ).eval()
    return transformers.pipeline("text-classification", model=model, tokenizer=fast, device="cpu", top_k=None)


def exported(labeller: Labeller, threads: int) -> Call:
    """Export the classifier as ONNX in whole numbers of 8 bits, and read it back."""
    import onnxruntime

    from rehead.use.export.folder import export_run

    tokenizer, settings = labeller.run.tokenizer, onnxruntime.SessionOptions()
    assert tokenizer is not None
    settings.intra_op_num_threads = threads
    with tempfile.TemporaryDirectory() as folder:
        export_run(labeller.run, Path(folder) / "exported", "onnx-int8")
        session = onnxruntime.InferenceSession(
            str(Path(folder) / "exported" / "model.onnx"), settings, providers=["CPUExecutionProvider"]
        )

    def call(texts: list[str]) -> list[Any]:
        return [session.run(None, {"ids": np.array(tokenizer.encode(text), np.int64)}) for text in texts]

    return call


def words(train: Path) -> Call:
    """Fit TF-IDF and logistic regression, as the baseline of `rehead compare` does but for the choice of settings."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    data = read_examples([str(train)])
    fitted = make_pipeline(TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True), LogisticRegression(max_iter=1000))
    fitted.fit(data.texts, [labels[0] for labels in data.labels])
    call: Call = fitted.predict_proba
    return call


def latencies(sides: dict[str, Call], texts: list[str]) -> dict[str, tuple[float, float]]:
    """Time each text by itself, the sides taking turns: milliseconds at most of half of them, and of 99 in 100."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for text in [*texts[:5], *texts]:  # the first ones warm up
        for name, call in sides.items():
            start = time.perf_counter()
            call([text])
            times[name].append(1e3 * (time.perf_counter() - start))
    return {name: (float(np.median(each[5:])), float(np.quantile(each[5:], 0.99))) for name, each in times.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("train", type=Path)
    parser.add_argument("texts", type=Path)
    parser.add_argument("--documents", type=int, default=128)
    parser.add_argument("--alone", type=int, default=400, help="texts whose time is taken one by one")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    labeller = Labeller.open(given.run)
    every = read_examples([str(given.texts)], check=False).texts
    texts, one_by_one = every[: given.documents], every[: given.alone]
    views = [each for each in open_views(labeller.run.model) if isinstance(each, BagView | LayersView)]
    longest = min([POSITIONS, *(each.max_length for each in views)])
    sides: dict[str, Call] = {"rehead": labeller.probabilities}
    try:
        pipeline = peer(labeller)
        settings = {"truncation": True, "max_length": longest}
        sides["pipeline, default call"] = lambda texts: pipeline(texts, **settings)
        batches = {**settings, "batch_size": BATCH, "padding": True}
        sides[f"pipeline, batches of {BATCH}"] = lambda texts: pipeline(texts, **batches)
        sides["pipeline, sorted batches"] = lambda texts: pipeline(sorted(texts, key=len), **batches)
    except ImportError:
        print("transformers is not installed: pip install 'rehead[bench]'")
    try:
        sides["rehead export, ONNX int8"] = exported(labeller, given.threads)
    except ImportError:
        print("onnx or onnxruntime is not installed: pip install 'rehead[export]'")
    sides["TF-IDF + logistic regression"] = words(given.train)
    found = best({name: lambda call=call: call(texts) for name, call in sides.items()}, given.rounds)
    tokens = np.mean([len(each) for each in labeller.encode(texts).ids])
    shape = labeller.run.model.config
    print(
        f"{given.run}: {shape.nhid} wide, {shape.nlayers} layers; {len(texts)} texts of {tokens:.0f} tokens, of which "
        f"the pipeline reads {longest} at most, and {len(one_by_one)} one by one; {given.threads} thread(s)"
    )
    alone = latencies({name: call for name, call in sides.items() if "batches" not in name}, one_by_one)
    print(f"{'':<30}{'texts/s':>9}{'rehead is':>11}{'one text: p50':>16}{'p99':>10}")
    for name, seconds in found.items():
        one = "{:>13.2f} ms{:>7.2f} ms".format(*alone[name]) if name in alone else ""
        print(f"{name:<30}{len(texts) / seconds:>9.1f}{seconds / found['rehead']:>10.2f}×{one}", flush=True)


if __name__ == "__main__":
    main()
