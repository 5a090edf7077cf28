"""What transformers is given of a Transformer: a temporary directory with the files that were checked, and no others.

transformers looks for files by itself (`tokenizer.4.0.json` instead of `tokenizer.json`, chat templates, …), follows
paths in configs, downloads code for the attention that a config names, and builds a model before it looks at the
weights. So the directory has links to the weights and vocabularies that are listed in the digests, the `tokenizer.json`
that the gate let pass, and configs without the fields that name files, code or kernels.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rehead.bases.files import CONFIG, TOKENIZER_CONFIG, TOKENIZER_JSON, fields_of, inside, transformer_files
from rehead.bases.tensors import count_values
from rehead.disk import write_json
from rehead.errors import UserError
from rehead.text.tokenizer_gate import CheckedTokenizer, check_tokenizer

CODE = re.compile(r"auto_map|_?(attn|experts)_implementation(_internal)?|(use_)?kernels?(_config)?")
FILES = re.compile(r".*_files?|name_or_path|_name_or_path")
MAX_GROWTH, FREE_GROWTH = 4, 2**27  # how many more values than its files a model may have: times theirs, plus these


@contextlib.contextmanager
def staged(home: Path) -> Iterator[tuple[Path, CheckedTokenizer | None]]:
    """Yield the directory, and the `tokenizer.json` in it if there is one."""
    checked = None
    with tempfile.TemporaryDirectory(prefix="rehead-", ignore_cleanup_errors=True) as made:
        directory = Path(made)
        for name in transformer_files(home):
            file = inside(home, name)
            if name in (CONFIG, TOKENIZER_CONFIG):
                write_json(directory / name, _harmless(fields_of(home, name), file))
            elif name == TOKENIZER_JSON:
                checked = check_tokenizer(file)
                (directory / name).write_text(checked.text, encoding="utf-8")
            else:
                _link(file.resolve(), directory / name)
        yield directory, checked


def _link(file: Path, to: Path) -> None:
    try:
        to.symlink_to(file)
    except OSError:  # Windows without the right to
        shutil.copyfile(file, to)


def _harmless(fields: Any, file: Path) -> Any:  # noqa: ANN401 (anything JSON may hold)
    """Leave out the fields that name code, kernels or files, however nested; refuse weights that code must unpack."""
    if isinstance(fields, list):
        return [_harmless(each, file) for each in fields]
    if not isinstance(fields, dict):
        return fields
    if fields.get("quantization_config") is not None:
        raise UserError(f"{file}: quantized weights are not read. Use the model as it was before.")
    return {
        name: _harmless(value, file)
        for name, value in fields.items()
        if not CODE.fullmatch(name) and not FILES.fullmatch(name)
    }


def check_memory(directory: Path, transformers: Any, kind: str) -> None:  # noqa: ANN401 (a module without types)
    """Refuse a config that describes far more values than the files hold: what is missing would be made."""
    import torch

    stored = sum(count_values(file) for file in directory.glob("*.safetensors"))
    config = transformers.AutoConfig.from_pretrained(str(directory), local_files_only=True, trust_remote_code=False)
    with torch.device("meta"):
        model = getattr(transformers, kind).from_config(config)
    values = sum(each.numel() for each in (*model.parameters(), *model.buffers()))
    if values > MAX_GROWTH * stored + FREE_GROWTH:
        raise UserError(f"{CONFIG} describes {values:,} numbers, but its weights are {stored:,}. Copy it again.")
