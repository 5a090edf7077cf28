"""Texts → features: the one seam between text and classifiers. A new view is one file, and one line here."""

from __future__ import annotations

from rehead.errors import ConfigError
from rehead.model.config import Classifier, ViewConfig
from rehead.model.heads import ClassifierHead
from rehead.model.model import Model
from rehead.text.long_documents import LongRule
from rehead.views.bag import BagView
from rehead.views.brought import BroughtOptions, BroughtView
from rehead.views.characters import CharactersView
from rehead.views.encoder import EncoderOptions, EncoderView, usual_rule
from rehead.views.layers import LayersView
from rehead.views.lsa import LsaView
from rehead.views.static import StaticView
from rehead.views.tokens import TokensView
from rehead.views.view import View
from rehead.views.words import WordsView

VIEWS: dict[str, type[View]] = {
    view.name: view
    for view in (BagView, LayersView, TokensView, WordsView, CharactersView, LsaView, EncoderView, StaticView)
}


def make_view(model: Model, config: ViewConfig) -> View:
    """Make the view that a config names."""
    if config.kind not in VIEWS:
        raise ConfigError(f"view {config.name!r} is not known. There are: {', '.join(VIEWS)}.")
    return VIEWS[config.kind].from_config(model, config)


def brought_views(model: Model, *, long: LongRule | None = "head") -> list[BroughtView]:
    """Make the views of the bases that others pretrained, one for each.

    Encoders cut long texts as `long` says; None: as a new classifier does.
    """
    found: list[BroughtView] = []
    for name, brought in model.brought.items():
        base = name.partition(":")[2]
        if brought.kind == "encoder":
            found.append(EncoderView(model, EncoderOptions(base=base, long=long or usual_rule(brought))))
        else:
            found.append(StaticView(model, BroughtOptions(base=base)))
    return found


def views_beside(model: Model, *, long: bool = False) -> list[View]:
    """Make the views that can stand beside the vectors of a base: all that learn from the text itself.

    Of long texts, none reads character n-grams.
    """
    kinds = [view for view in VIEWS.values() if view.learns and not (long and view is CharactersView)]
    return [view(model, view.Options()) for view in kinds]


def check_views(model: Model) -> None:
    """Refuse a classifier whose config states views or options that there are not, or widths that do not fit."""
    if isinstance(model.head_config, Classifier):
        for config in model.head_config.views:
            view = make_view(model, config)
            for name in ("name", "columns", "sparse", "terms"):
                if (own := getattr(view, name)) != (given := getattr(config, name)):
                    raise ConfigError(f"view {config.name!r} has {name}={own}, but the head has {name}={given}.")


def damaged_statistics(model: Model) -> str | None:
    """Say which of the statistics that a classifier's head keeps its views could not use; None if all is well."""
    head = model.head
    for config in head.config.views if isinstance(head, ClassifierHead) else ():
        assert isinstance(head, ClassifierHead)  # noqa: S101 (for the type checker)
        tensors = dict(head.of(config.name).named_buffers())
        if wrong := make_view(model, config).damaged_statistics(tensors):
            return f"head.views.{config.name}.{wrong}"
    return None
