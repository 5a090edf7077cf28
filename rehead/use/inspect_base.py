"""`rehead inspect` of a base that others pretrained: its parameters by part, the text it can read, its attention."""

from __future__ import annotations

import json
import sys
import unicodedata
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from rehead.bases.bert import Shape
from rehead.bases.brought import Brought, Engine
from rehead.bases.packed import PackedEncoder
from rehead.bases.sources import open_brought
from rehead.bases.static import StaticTable
from rehead.errors import UserError
from rehead.model.accounting import BYTES
from rehead.model.size_options import SIZES
from rehead.terminal import results_console
from rehead.use.inspect import InspectOptions, memory, percent, plain_table

if TYPE_CHECKING:
    import tokenizers

SCRIPTS = 8  # shown by name
FEW = 100  # tokens of a script, below which its words are read in single characters at best


@dataclass(frozen=True)
class Part:
    """One line of the table of parameters."""

    part: str
    formula: str
    count: int


def inspect_base(options: InspectOptions) -> None:
    """Run the command for a brought base: count, draw, print."""
    for name in ("preset", "vocab", "classes", "direction", *SIZES):
        if getattr(options, name) is not None:
            raise UserError(f"--{name} does not apply to {options.run}, a base that others pretrained. Drop it.")
    if (options.text is None) != (options.plots is None):
        raise UserError("attention is drawn on a text, into a directory: give both --text and --plots DIR, or neither.")
    brought = open_brought(str(options.run))
    parts, reads = count_parts(brought), describe_text(brought)
    drawn = []
    if options.plots is not None and options.text is not None:
        drawn = _draw(brought, options.text, options.plots, overwrite=options.overwrite)
    if options.json:
        found = brought.describe() | {"parts": [asdict(each) for each in parts], "reads": reads}
        print(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        _print(brought, parts, reads)
    if not options.quiet:
        for line in drawn:
            print(line, file=sys.stderr)


def count_parts(brought: Brought) -> list[Part]:
    """Count the parameters by part. Those of the BERT family are derived from its sizes, and compared with the file."""
    engine = brought.engine
    if isinstance(engine, PackedEncoder):
        parts = _count_bert(engine.shape)
        if more := engine.parameters - sum(each.count for each in parts):
            parts.append(Part("pooler (not read)", "", more))
        return parts
    if isinstance(engine, StaticTable):
        return [Part("table", f"{len(engine.table):,} rows · {engine.width}", engine.parameters)]
    counted: Counter[str] = Counter()
    for name, each in engine.model.named_parameters():  # type: ignore[attr-defined] # of transformers
        names = name.split(".")
        number = next((place for place, part in enumerate(names) if part.isdigit()), 1)
        counted[".".join(names[: max(1, number)]) + (".*" if number > 1 or names[0].isdigit() else "")] += each.numel()
    return [Part(name, "", count) for name, count in counted.items()]


def _count_bert(shape: Shape) -> list[Part]:
    h, f, n = shape.nhid, shape.nff, shape.nlayers
    parts = [
        Part("token embeddings", f"V·H = {shape.ntokens:,}·{h}", shape.ntokens * h),
        Part("position embeddings", f"P·H = {shape.npositions}·{h}", shape.npositions * h),
        Part("token types", f"{shape.types}·H", shape.types * h),
        Part("norm", "2·H", 2 * h),
        Part("relative positions", f"{shape.buckets}·{shape.nhead} heads", shape.buckets * shape.nhead),
        Part(f"attention, {n} layers", f"N·(4·H·H + 4·H) = {n}·(4·{h}·{h} + 4·{h})", n * (4 * h * h + 4 * h)),
        Part(f"feed-forward, {n} layers", f"N·(2·H·F + F + H), F = {f:,}", n * (2 * h * f + f + h)),
        Part(f"norms, {n} layers", "N·4·H", n * 4 * h),
    ]
    return [each for each in parts if each.count]


def describe_text(brought: Brought) -> dict[str, Any]:
    """Say which text it reads: its tokenizer, the scripts of its vocabulary, and how long a text may be."""
    engine = brought.engine
    found: dict[str, Any] = {"max_length": engine.max_length}
    if isinstance(engine, StaticTable) and "word" in engine.stated:
        return found | {"tokenizer": "words", "scripts": _scripts(json.loads(engine.tokens_file))}
    tokenizer: tokenizers.Tokenizer | None = (
        _reopened(engine.tokens_file)
        if isinstance(engine, PackedEncoder | StaticTable)
        else getattr(engine, "_inner", None)
    )
    if tokenizer is None:
        return found | {"tokenizer": "not a tokenizer.json", "scripts": {}}
    size = tokenizer.get_vocab_size()
    fields = json.loads(tokenizer.to_str())
    one = tokenizer.encode("A", add_special_tokens=False).ids == tokenizer.encode("a", add_special_tokens=False).ids
    anything = "ByteLevel" in json.dumps([fields["pre_tokenizer"], fields["decoder"]]) or fields["model"].get(
        "byte_fallback"
    )
    return found | {
        "tokenizer": fields["model"].get("type", "unknown"),
        "vocabulary": size,
        "lowercase": one,
        "unknown_characters": "read as bytes" if anything else "become the unknown token",
        "scripts": _scripts(tokenizer.decode([token]) for token in range(size)),
    }


def _reopened(content: str) -> tokenizers.Tokenizer:
    import tokenizers

    return tokenizers.Tokenizer.from_str(content)


def _scripts(tokens: Any) -> dict[str, int]:  # noqa: ANN401 (an iterable of texts)
    """Count tokens by the script of their first letter, the most frequent first."""
    counted: Counter[str] = Counter()
    for token in tokens:
        if letter := next((each for each in token if each.isalpha()), None):
            name = unicodedata.name(letter, "OTHER").split()[0]
            if name != "MODIFIER":  # letters of no script
                counted[{"CJK": "Chinese characters"}.get(name, name.capitalize())] += 1
    return dict(counted.most_common())


def _print(brought: Brought, parts: list[Part], reads: dict[str, Any]) -> None:
    console = results_console(200)
    total = sum(each.count for each in parts)
    console.print(f"{brought.name} from {brought.source}, licence: {brought.license or 'not stated'}")
    table = plain_table("part", "formula")
    for name in ("parameters", "share", "float32"):
        table.add_column(name, justify="right")
    rows = [*parts, Part("total", "", total)]
    for each in rows:
        style = "bold" if each.part == "total" else None
        cells = (f"{each.count:,}", percent(each.count / max(1, total)), memory(BYTES * each.count))
        table.add_row(each.part, each.formula, *cells, style=style)
    console.print(table)
    console.print(f"Checked: the weights hold exactly {brought.engine.parameters:,} parameters.")
    length = reads["max_length"]
    console.print(f"\nVectors of {brought.engine.width} values. It reads {_length(length)}.")
    console.print(
        f"Tokenizer: {reads['tokenizer']}"
        + (f", {reads['vocabulary']:,} tokens" if "vocabulary" in reads else "")
        + (", lower case only" if reads.get("lowercase") else "")
        + (f"; unknown characters {reads['unknown_characters']}" if "unknown_characters" in reads else "")
        + "."
    )
    scripts = reads["scripts"]
    if scripts:
        shown = ", ".join(f"{name} {count:,}" for name, count in list(scripts.items())[:SCRIPTS])
        console.print(f"Tokens by script: {shown}{', …' if len(scripts) > SCRIPTS else ''}.")
        console.print(f"Of a script with fewer than {FEW} tokens, it reads single characters at best.")


def _length(length: int | None) -> str:
    return "whole texts" if length is None else f"{length:,} tokens of a text at once"


def attention_weights(engine: Engine, ids: torch.Tensor) -> tuple[list[torch.Tensor], bool]:
    """Give the attention weights of an encoder, (1, heads, T, T) by layer, and whether tokens see earlier ones only.

    ids: (1, T).
    """
    watched: list[torch.Tensor] = []
    if isinstance(engine, PackedEncoder):
        engine.bert([ids], watched)
        return [each.clone() for each in watched], False
    model = engine.model  # type: ignore[attr-defined] # of transformers
    before = model.config._attn_implementation  # there is no public name for it
    model.set_attn_implementation("eager")  # the fused kernels do not give their weights
    try:
        with torch.inference_mode():
            given = model(input_ids=ids, output_attentions=True)
    finally:
        model.set_attn_implementation(before)
    watched = [each.clone() for each in getattr(given, "attentions", None) or () if each is not None]
    return watched, any(getattr(each, "is_causal", False) for each in model.modules())


def _token(engine: Engine, number: int) -> str:
    tokenizer: Any = engine.tokenizer  # type: ignore[attr-defined] # that of tokenizers, or of transformers
    found = (
        tokenizer.id_to_token(number) if isinstance(engine, PackedEncoder) else tokenizer.convert_ids_to_tokens(number)
    )
    return str(found or "?")


def _draw(brought: Brought, text: str, directory: Path, *, overwrite: bool) -> list[str]:
    """Draw the attention weights on a text; return the lines to print about the files."""
    from rehead.figures import save_figures
    from rehead.use.pictures import MAX_TOKENS, draw_weights

    engine = brought.engine
    if isinstance(engine, StaticTable):
        raise UserError(f"{brought.name} is a static table: it has no attention. Drop --text, --plots.")
    [ids] = engine.token_ids([text])
    shown = torch.tensor([ids[:MAX_TOKENS]])
    if not shown.numel():
        raise UserError("--text has no tokens. Give a few words.")
    layers, causal = attention_weights(engine, shown)
    if not layers:
        raise UserError(f"{brought.name} has no attention weights to draw. Drop --text, --plots.")
    tokens = [_token(engine, each) for each in shown[0].tolist()]
    figures = draw_weights([each[0] for each in layers], tokens, len(ids), causal=causal)
    saved = save_figures(figures, directory, overwrite=overwrite)
    return ["wrote " + ", ".join(map(str, saved.paths)), *saved.notes]
