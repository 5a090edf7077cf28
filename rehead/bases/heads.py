"""The language-model head that a model in Hugging Face's format came with: which one it is, and loading both."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from rehead.bases.encoder import import_transformers, load_model
from rehead.bases.files import CONFIG, fields_of
from rehead.errors import UserError

HeadName = Literal["masked", "causal"]
CLASSES: dict[HeadName, str] = {"masked": "AutoModelForMaskedLM", "causal": "AutoModelForCausalLM"}


def head_of(home: Path) -> HeadName | None:
    """Tell by the config which head the architecture is pretrained with; None: neither.

    transformers has a causal head for BERT, too: it counts as one only where the config says `is_decoder`.
    """
    import_transformers()
    from transformers.models.auto import modeling_auto as auto

    fields = fields_of(home, CONFIG)
    name = fields.get("model_type")
    if name in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES and not fields.get("is_decoder"):
        return "masked"
    return "causal" if name in auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES else None


def load_language_model(home: Path, head: HeadName) -> Any:  # noqa: ANN401 (a module of transformers)
    """Load a model with its head; one whose weights have no such head is refused."""
    transformers = import_transformers()
    if head_of(home) != head:
        raise UserError(
            f"{home}: not pretrained with a {head} head: --objective {head} cannot go on with it. "
            "Choose --objective contrastive, or a model that has such a head."
        )
    try:
        return load_model(home, transformers, CLASSES[head])
    except UserError as error:
        raise UserError(f"{error} If it was saved without its {head} head, choose --objective contrastive.") from error
