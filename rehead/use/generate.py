"""`rehead generate`: continue a text with a language model, printed as it is generated."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rehead.errors import UserError
from rehead.options import CommonOptions, flag, positional
from rehead.terminal import print_note, printable, read_stdin
from rehead.use.abilities import check_ability, training_length
from rehead.use.cores import one_core

if TYPE_CHECKING:
    from rehead.model.model import Model
    from rehead.text.tokenizer import Tokenizer
    from rehead.use.sampling import Sampling


@dataclass
class GenerateOptions(CommonOptions):
    """Generate text with a run that was pretrained with --objective causal or hybrid."""

    GROUP = "sampling"
    MOST_USED = ("prompt", "tokens", "n", "temperature", "seed")

    run: Path = positional()
    "Run pretrained with --objective causal or hybrid."

    prompt: str | None = flag(None, metavar="TEXT", group="reads")
    "Text to continue; - reads it from standard input (default: start a new text)."

    tokens: int = flag(100, metavar="N")
    "Maximum number of tokens to generate; the model may end the text earlier."

    n: int = flag(1, metavar="N")
    "Number of samples to generate."

    temperature: float = flag(0.8, metavar="T")
    "Sampling temperature: lower is more predictable, higher more random; 0 is greedy decoding."

    greedy: bool = False
    "Greedy decoding: always take the most likely token, as with --temperature 0."

    top_k: int | None = flag(None, metavar="K")
    "Top-k sampling: sample from the K most likely tokens (default: no such limit)."

    top_p: float = flag(0.95, metavar="P")
    "Nucleus sampling: sample from the smallest set of most likely tokens with total probability P; 1 disables it."

    repetition_penalty: float = flag(1.0, metavar="R")
    "Penalty on tokens that occurred before: 1.1 is mild, 1.5 strong; 1 disables it."

    no_repeat_ngram: int | None = flag(None, metavar="N")
    "Never repeat an n-gram of N tokens (default: repetition is allowed)."

    seed: int = flag(0, metavar="N")
    "Random seed."

    cache: bool = flag(True, group="hardware")
    "Key-value cache; --no-cache recomputes the whole text for every token: the same output, but slower."

    json: bool = flag(False, group="writes")
    "Print a JSON document once all samples are complete."


@dataclass
class Sample:
    """One continuation."""

    text: str = ""
    "What follows the prompt."
    ids: list[int] = field(default_factory=list)
    "Its tokens, without the end-of-text token."
    ended: bool = False
    "Whether the model ended it; if not, it reached the token limit."


def generate(options: GenerateOptions) -> None:
    """Run the command: load, generate, print."""
    sampling = _sampling(options)
    prompt = read_stdin() if options.prompt == "-" else options.prompt or ""
    from rehead.runs.run import load

    run = load(options.run)
    tokenizer = check_ability(run, options.run, "generates", "continue a text")
    ids, window = prompt_ids(tokenizer, prompt), training_length(run)
    show: Callable[[int, str, bool], None] = (lambda *_: None) if options.json else Printer(prompt, options.n)
    with one_core():
        samples = generate_samples(
            run.model,
            tokenizer,
            ids,
            sampling,
            n=options.n,
            tokens=options.tokens,
            seed=options.seed,
            window=window,
            cached=options.cache,
            show=show,
        )
    if options.json:
        print(json.dumps(_document(options, prompt, len(ids), sampling, samples), indent=2, ensure_ascii=False))
    context = len(ids) + max(len(each.ids) for each in samples) - 1
    if context > window and not options.quiet:
        print_note(
            f"the context of this run is {window:,} tokens. Prompt and text have {context:,}: the beginning was "
            "dropped while generating."
        )


def prompt_ids(tokenizer: Tokenizer, prompt: str) -> list[int]:
    """Tokenize a prompt, after an end-of-text token: in training too, a text follows the end of another."""
    return [tokenizer.eos, *tokenizer.encode(prompt)]


def generate_samples(
    model: Model,
    tokenizer: Tokenizer,
    prompt: Sequence[int],
    sampling: Sampling,
    *,
    n: int = 1,
    tokens: int = 100,
    seed: int = 0,
    window: int | None = None,
    cached: bool = True,
    show: Callable[[int, str, bool], None] = lambda *_: None,
) -> list[Sample]:
    """Continue a prompt n times, up to this many tokens each, with a context of `window` (default: maxlen) tokens.

    `show(sample, text, over)` is called as text is generated: with the text that a sample gained, and whether it ended.
    """
    from rehead.use.autoregressive import generate_tokens
    from rehead.use.sampling import Sampler
    from rehead.use.streaming import TextStream

    forbidden = _forbidden_tokens(model, tokenizer)
    sampler = Sampler(sampling, prompt, n=n, seed=seed, end=tokenizer.eos, forbidden=forbidden)
    samples = [Sample() for _ in range(n)]
    streams = [TextStream(tokenizer, prompt) for _ in range(n)]
    window = model.config.maxlen if window is None else window
    for step in generate_tokens(model, prompt, sampler, tokens=tokens, window=window, cached=cached):
        for number, token in step:
            sample, stream = samples[number], streams[number]
            sample.ended = token == tokenizer.eos
            if not sample.ended:
                sample.ids.append(token)
            over = sample.ended or len(sample.ids) == tokens
            text = ("" if sample.ended else stream.add(token)) + (stream.end() if over else "")
            sample.text += text
            if text or over:
                show(number, text, over)
    return samples


class Printer:
    """Prints samples as they are generated, one after the other; a later one is held back until its turn."""

    def __init__(self, prompt: str, n: int) -> None:
        self.prompt, self.n = prompt, n
        self.waiting = [""] * n
        self.over = [False] * n
        self.turn = 0
        self._begin()

    def __call__(self, sample: int, text: str, over: bool) -> None:
        """Add text to a sample; print it if it is that sample's turn, and any whose turn comes then."""
        self.waiting[sample] += text
        self.over[sample] = over
        while self.turn < self.n:
            _put(self.waiting[self.turn])
            self.waiting[self.turn] = ""
            if not self.over[self.turn]:
                break
            _put("\n")
            self.turn += 1
            self._begin()
        sys.stdout.flush()

    def _begin(self) -> None:
        if self.turn < self.n:
            if self.n > 1:
                _put(("\n" if self.turn else "") + f"--- {self.turn + 1} of {self.n}\n")
            _put(self.prompt)
            sys.stdout.flush()


def _put(text: str) -> None:
    """Write to standard output; on a terminal, replace control characters."""
    sys.stdout.write(printable(text, keep="\n\t") if sys.stdout.isatty() else text)


def _forbidden_tokens(model: Model, tokenizer: Tokenizer) -> Any:  # noqa: ANN401 (a tensor; torch is not imported up here)
    """Mask of tokens never to generate: special tokens but end-of-text, and ids beyond the vocabulary. (V) of bool."""
    import torch

    forbidden = torch.zeros(model.config.ntokens, dtype=torch.bool)
    forbidden[tokenizer.special_ids()] = True
    forbidden[tokenizer.vocab_size :] = True
    forbidden[tokenizer.eos] = False
    return forbidden.to(model.device)


def _sampling(options: GenerateOptions) -> Sampling:
    """Check the options, and return the sampling parameters among them."""
    for name, value in (("tokens", options.tokens), ("n", options.n)):
        if value < 1:
            raise UserError(f"--{name}={value} is out of range. Choose 1 or more.")
    if options.greedy and options.temperature not in (0, GenerateOptions.temperature):
        raise UserError(f"--greedy contradicts --temperature={options.temperature:g}. Drop one of them.")
    temperature = 0.0 if options.greedy else options.temperature
    if temperature == 0 and options.n > 1:
        raise UserError(
            f"--n={options.n}: greedy decoding gives the same text every time. Drop --n, or set --temperature above 0."
        )
    from rehead.use.sampling import Sampling

    return Sampling(
        temperature=temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        repetition_penalty=options.repetition_penalty,
        no_repeat_ngram=options.no_repeat_ngram,
    )


def _document(
    options: GenerateOptions, prompt: str, prompt_tokens: int, sampling: Sampling, samples: list[Sample]
) -> dict[str, Any]:
    return {
        "run": str(options.run),
        "prompt": prompt,
        "prompt_tokens": prompt_tokens,
        "seed": options.seed,
        "sampling": asdict(sampling),
        "samples": [{"text": each.text, "tokens": len(each.ids), "ended": each.ended} for each in samples],
    }
