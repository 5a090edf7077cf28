"""Long texts of encoders in pieces: which tokens each piece has, and that the vectors of pieces are averaged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rehead.bases.brought import open_encoder
from rehead.bases.encoder import Encoder
from rehead.bases.pieces import Cutting
from rehead.bases.tokens import cut_tokens
from rehead.errors import ConfigError, UserError
from rehead.model.config import ViewConfig
from rehead.runs.run import bring
from rehead.text.long_documents import cut_documents
from rehead.views import brought_views, make_view
from rehead.views.cache import read_cached
from rehead.views.encoded import EncodedTexts
from rehead.views.encoder import EncoderView
from tests.bases.tiny import TEXTS, WORDS, make_encoder, make_sentence_encoder

LONG = " ".join(WORDS[place % len(WORDS)] for place in range(100))
INNER = [4 + place % len(WORDS) for place in range(100)]  # its tokens


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_encoder(tmp_path / "tiny", max_length=32)  # 30 between <s> and </s>


def pieces_of(root: Path, rule: str, most: int = 4) -> list[list[int]]:
    found = open_encoder(root).cutter.cut(["bad", LONG, "good"], Cutting(rule, most))
    assert found.document.tolist() == [0, *[1] * (len(found.ids) - 2), 2]
    return found.ids[1:-1]


def test_pieces_are_what_the_rule_says_between_the_special_tokens(root: Path) -> None:
    assert pieces_of(root, "head") == [[0, *INNER[:30], 2]]
    assert pieces_of(root, "tail") == [[0, *INNER[-30:], 2]]
    assert pieces_of(root, "head+tail") == [[0, *INNER[:7], *INNER[-23:], 2]]
    starts = [0, 23, 46, 70]  # four windows of 30 tokens over 100
    assert pieces_of(root, "windows") == [[0, *INNER[begin : begin + 30], 2] for begin in starts]
    assert pieces_of(root, "windows", 2) == [[0, *INNER[begin : begin + 30], 2] for begin in (0, 70)]
    assert pieces_of(root, "windows", 1) == [[0, *INNER[:30], 2]]


@pytest.mark.parametrize("rule", ["head", "tail", "head+tail", "windows"])
def test_a_text_that_fits_is_read_whole(root: Path, rule: str) -> None:
    exact = " ".join(LONG.split()[:30])
    engine = open_encoder(root)
    found = engine.cutter.cut([exact], Cutting(rule))
    assert found.ids == [[0, *INNER[:30], 2]]
    np.testing.assert_array_equal(engine.encode([exact, "bad"], Cutting(rule)), engine.encode([exact, "bad"]))
    assert engine.encode([], Cutting(rule)).shape == (0, 16)


def test_the_vector_of_a_text_is_the_mean_of_its_windows_with_either_engine(root: Path) -> None:
    engine, other = open_encoder(root), Encoder(root)
    words = LONG.split()
    windows = [" ".join(words[begin : begin + 30]) for begin in (0, 23, 46, 70)]
    expected = engine.encode(windows).mean(0)
    for each in (engine, other):
        found = each.encode(["bad", LONG, "good"], Cutting("windows"))
        np.testing.assert_allclose(found[1], expected, atol=1e-5)
        np.testing.assert_allclose(found[[0, 2]], engine.encode(["bad", "good"]), atol=1e-5)


def test_a_prompt_stands_before_every_window(tmp_path: Path) -> None:
    prompts = {"prompts": {"query": "what is "}, "default_prompt_name": "query"}
    root = make_sentence_encoder(tmp_path / "tiny", {"pooling_mode_mean_tokens": True}, prompts=prompts)
    engine = open_encoder(root)
    prompt = engine.tokenizer.encode("what is ", add_special_tokens=False).ids
    pieces = engine.cutter.cut([LONG], Cutting("windows")).ids
    assert len(pieces) > 1
    assert all(each[: 1 + len(prompt)] == [0, *prompt] and each[-1] == 2 and len(each) == 24 for each in pieces)


@pytest.mark.parametrize("rule", ["head", "tail", "head+tail", "windows"])
@pytest.mark.parametrize("count", [31, 60, 61, 100, 500])
def test_tokens_are_cut_as_those_of_our_own_models(rule: str, count: int) -> None:
    ids = list(range(count))
    _, expected = cut_documents([np.array(ids)], 30, rule)
    assert cut_tokens(ids, 30, rule, count) == [each.tolist() for each in expected]


def test_a_view_states_what_it_reads_and_caches_it_apart(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REHEAD_CACHE", str(tmp_path / "cache"))
    model = bring(root).model
    [head], [windows] = brought_views(model), brought_views(model, long="windows")
    assert isinstance(windows, EncoderView)
    assert (head.max_tokens, windows.max_tokens) == (32, 4 * 32)
    again = make_view(model, windows.config())
    assert again.config() == windows.config()
    texts = EncodedTexts([LONG, *TEXTS])
    first = read_cached(head, texts, None).matrix
    second = read_cached(windows, texts, None).matrix
    assert not np.allclose(first[0], second[0])
    np.testing.assert_array_equal(read_cached(again, texts, None).matrix, second)
    old = ViewConfig(name="encoder:tiny", columns=16, unit=True, options={"base": "tiny"})  # of an earlier version
    np.testing.assert_array_equal(make_view(model, old).read(texts).matrix, head.read(texts).matrix)


@pytest.mark.parametrize("options", [{"long": "middle"}, {"windows": 0}, {"windows": True}])
def test_options_that_mean_nothing_are_refused(root: Path, options: dict[str, object]) -> None:
    config = ViewConfig(name="encoder:tiny", columns=16, options={"base": "tiny", **options})
    with pytest.raises(ConfigError):
        make_view(bring(root).model, config)


def test_a_tokenizer_without_a_core_reads_beginnings_only(root: Path) -> None:
    encoder = Encoder(root)
    encoder.cutter.tokenizer = None
    with pytest.raises(UserError, match="--long head"):
        encoder.encode([LONG], Cutting("windows"))
