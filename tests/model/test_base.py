"""The base against references: torch's encoder, the document alone, the explicit attention."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rehead.errors import ConfigError
from rehead.model import Base, Model, dropout, preset
from rehead.model.layers import Layer
from rehead.model.positions import rotary_cos_sin, sinusoidal_table
from tests.model.conftest import POSITIONS, alive, miniature

CLOSE = 1e-5


# Where torch's encoder layer keeps what ours keeps.
NAMES = {
    "qkv.weight": "self_attn.in_proj_weight",
    "qkv.bias": "self_attn.in_proj_bias",
    "output.weight": "self_attn.out_proj.weight",
    "output.bias": "self_attn.out_proj.bias",
    "up.weight": "linear1.weight",
    "up.bias": "linear1.bias",
    "down.weight": "linear2.weight",
    "down.bias": "linear2.bias",
    **{f"norm{n}.{kind}": f"norm{n}.{kind}" for n in (1, 2) for kind in ("weight", "bias")},
}


def torchs_encoder(base: Base) -> nn.TransformerEncoder:
    """torch.nn.TransformerEncoder with a base's weights."""
    config = base.config
    layer = nn.TransformerEncoderLayer(
        config.nhid,
        config.nhead,
        config.nff,
        config.dropout,
        activation=config.feedforward,
        norm_first=config.norm == "pre",
        batch_first=True,
    )
    encoder = nn.TransformerEncoder(layer, config.nlayers, enable_nested_tensor=False)
    state = base.state_dict()
    encoder.load_state_dict(
        {
            f"layers.{n}.{theirs}": state[f"layers.{n}.{ours}"]
            for n in range(config.nlayers)
            for ours, theirs in NAMES.items()
        }
    )
    return encoder


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("padded", [True, False])
def test_lab_is_torchs_encoder_forward_and_gradients(causal: bool, padded: bool) -> None:
    torch.manual_seed(0)
    base = Base(preset("lab", ntokens=300, dropout=0.0))  # the lab's own shape: 200 wide, 4 layers, 2 heads
    encoder = torchs_encoder(base)
    embedding = nn.Parameter(base.embedding.weight.detach().clone())
    ids = torch.randint(300, (3, 21))
    keep = torch.ones(3, 21, dtype=torch.bool)
    if padded:
        keep[1, 15:] = False
        keep[2, 4:] = False

    ours = base(ids, keep if padded else None, causal=causal)
    x = embedding[ids] * math.sqrt(200) + sinusoidal_table(21, 200)
    square = nn.Transformer.generate_square_subsequent_mask(21).isinf() if causal else None
    theirs = encoder(x, mask=square, src_key_padding_mask=~keep if padded else None)
    assert (ours - theirs)[keep].abs().max() < CLOSE

    pull = torch.randn_like(ours) * keep[..., None]
    (ours * pull).sum().backward()
    (theirs * pull).sum().backward()
    pairs = [(base.embedding.weight, embedding)]
    for number in range(4):
        for name, torchs in NAMES.items():
            pairs.append(
                (base.get_parameter(f"layers.{number}.{name}"), encoder.get_parameter(f"layers.{number}.{torchs}"))
            )
    for parameter, reference in pairs:
        assert parameter.grad is not None
        assert reference.grad is not None
        _assert_gradients_agree(parameter.grad, reference.grad)


@pytest.mark.parametrize("feedforward", ["relu", "gelu"])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_other_layers_are_torchs_too(feedforward: str, norm: str) -> None:
    """Pre-norm and gelu, with every weight alive."""
    config = miniature("lab", feedforward=feedforward, norm=norm, positions="none", ffmult=2.0, dropout=0.0)
    base = alive(config).base
    ids = torch.randint(50, (2, 9))
    with torch.no_grad():
        theirs = torchs_encoder(base).eval()(base.embedding(ids) * math.sqrt(16))
        assert torch.allclose(base(ids, causal=False), theirs, atol=1e-4, rtol=1e-4)


def test_small_layer_by_hand() -> None:
    """The default's layer, written out: norms before, rotated heads, a gated feed-forward, no bias."""
    config = miniature("small", nlayers=1)
    layer = alive(config).base.layers[0]
    assert isinstance(layer, Layer)
    x = torch.randn(1, 5, 16)

    def norm(values: Tensor, module: nn.LayerNorm) -> Tensor:
        centred = values - values.mean(-1, keepdim=True)
        return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * module.weight

    with torch.no_grad():
        q, k, v = (norm(x, layer.norm1) @ layer.qkv.weight.T).split(16, dim=-1)
        read = torch.zeros(1, 5, 16)
        for head in range(2):
            mine = slice(8 * head, 8 * head + 8)
            angles = torch.arange(5)[:, None] * 10_000 ** (-torch.arange(0, 8, 2) / 8)
            turn = torch.polar(torch.ones(5, 4), angles)
            turned_q, turned_k = (
                torch.complex(each[..., mine][..., :4], each[..., mine][..., 4:]) * turn for each in (q, k)
            )
            scores = (turned_q @ turned_k.conj().transpose(-2, -1)).real / math.sqrt(8)
            read[..., mine] = scores.softmax(-1) @ v[..., mine]
        middle = x + read @ layer.output.weight.T
        gate, value = (norm(middle, layer.norm2) @ layer.up.weight.T).chunk(2, dim=-1)
        expected = middle + (gate * gate.sigmoid() * value) @ layer.down.weight.T
        ours = layer(x, None, False, rotary_cos_sin(torch.arange(5)[None], 8))
    assert torch.allclose(ours, expected, atol=CLOSE, rtol=1e-4)


def test_dropout_is_on_in_training_and_off_otherwise(preset_name: str) -> None:
    config = miniature(preset_name, nlayers=0, dropout=0.5)
    base = Base(config)
    ids = torch.randint(50, (4, 20))
    dropped = base(ids, causal=False)
    assert 0.4 < (dropped == 0).float().mean() < 0.6
    assert not (base.eval()(ids, causal=False) == 0).any()


def test_fresh_weights_are_what_they_should_be() -> None:
    torch.manual_seed(0)
    lab = Base(preset("lab", ntokens=1000))
    assert lab.embedding.weight.abs().max() <= 0.1
    assert lab.embedding.weight.std().item() == pytest.approx(0.2 / math.sqrt(12), rel=0.02)
    qkv = lab.get_parameter("layers.0.qkv.weight")
    assert qkv.abs().max() <= math.sqrt(6 / (200 + 600))  # Xavier's bound for 200 → 600, as in torch's attention
    assert qkv.std().item() == pytest.approx(math.sqrt(2 / (200 + 600)), rel=0.02)
    assert not lab.get_parameter("layers.0.qkv.bias").any()
    small = Base(preset("small", ntokens=1000))
    assert small.embedding.weight.std().item() == pytest.approx(256**-0.5, rel=0.02)
    bag = Base(preset("bag", ntokens=1000, nbuckets=64))
    assert not bag.get_parameter("ngrams.weight").any()


def _assert_gradients_agree(ours: Tensor, theirs: Tensor) -> None:
    """Within 1e-5 of the largest entry: the entries are sums over the batch, in an order of the kernel's own."""
    assert (ours - theirs).abs().max() < CLOSE * max(1.0, theirs.abs().max().item())


def test_lab_drops_out_where_torchs_encoder_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """With torch's dropout on and one seed, the same numbers are drawn in the same places."""
    monkeypatch.setattr(dropout, "drop", F.dropout)
    torch.manual_seed(0)
    base = Base(miniature("lab", dropout=0.3))
    encoder = torchs_encoder(base)
    x = torch.randn(1, 9, 16)  # one document: with more, torch draws for (time, batch), we for (batch, time)
    torch.manual_seed(1)
    theirs = encoder(x, mask=nn.Transformer.generate_square_subsequent_mask(9), is_causal=True)
    torch.manual_seed(1)
    ours = x
    for layer in base.layers:
        ours = layer(ours, None, True, None)
    assert torch.allclose(ours, theirs, atol=CLOSE)


@pytest.fixture
def ids() -> Tensor:
    torch.manual_seed(3)
    return torch.randint(50, (2, 12))


def test_causality(preset_name: str, positions: str, ids: Tensor) -> None:
    """Changing token j never changes an output before j under the square mask, and does when read both ways."""
    base = alive(miniature(preset_name, positions=positions)).base
    with torch.no_grad():
        causal, both = base(ids, causal=True), base(ids, causal=False)
        for j in range(1, ids.shape[1]):
            changed = ids.clone()
            changed[:, j] = (changed[:, j] + 1) % 50
            after = base(changed, causal=True)
            assert torch.equal(after[:, :j], causal[:, :j])
            assert not torch.allclose(after[:, j], causal[:, j])
            assert not torch.allclose(base(changed, causal=False)[:, :j], both[:, :j])


def test_causality_holds_beside_padding(preset_name: str, ids: Tensor) -> None:
    """The same through the combined mask, which is another path through the attention kernel."""
    base = alive(miniature(preset_name)).base
    keep = torch.ones_like(ids, dtype=torch.bool)
    keep[1, 9:] = False
    changed = ids.clone()
    changed[:, 6] = (changed[:, 6] + 1) % 50
    with torch.no_grad():
        assert torch.equal(base(changed, keep, causal=True)[:, :6], base(ids, keep, causal=True)[:, :6])
        assert not torch.allclose(base(changed, keep, causal=False)[:, :6], base(ids, keep, causal=False)[:, :6])


@pytest.mark.parametrize("name", ["lab", "small", "base"])
def test_order_matters_only_through_positions(name: str, positions: str, ids: Tensor) -> None:
    base = alive(miniature(name, positions=positions, ngrams=1, nbuckets=0)).base
    order = torch.randperm(ids.shape[1])
    with torch.no_grad():
        straight, mixed = base(ids, causal=False), base(ids[:, order], causal=False)
    equivariant = torch.allclose(straight[:, order], mixed, atol=CLOSE)
    assert equivariant == (positions == "none")


def test_a_bag_of_single_words_has_no_order(ids: Tensor) -> None:
    base = alive(miniature("bag", ngrams=1, nbuckets=0)).base
    order = torch.randperm(ids.shape[1])
    with torch.no_grad():
        assert torch.equal(base(ids, causal=False)[:, order], base(ids[:, order], causal=False))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("side", ["right", "left"])
def test_padding_changes_nothing(preset_name: str, positions: str, causal: bool, side: str) -> None:
    """A document alone, padded, or beside longer ones gives the same result."""
    torch.manual_seed(4)
    base = alive(miniature(preset_name, positions=positions, maxlen=16)).base
    documents = [torch.randint(50, (length,)) for length in (5, 1, 12, 9)]
    width = 15
    rows, keep = torch.randint(50, (4, width)), torch.zeros(4, width, dtype=torch.bool)  # padding of any token
    for row, document in enumerate(documents):
        place = slice(0, len(document)) if side == "right" else slice(width - len(document), width)
        rows[row, place], keep[row, place] = document, True
    with torch.no_grad():
        together = base(rows, keep, causal=causal)
        for row, document in enumerate(documents):
            alone = base(document[None], causal=causal)[0]
            assert (together[row, keep[row]] - alone).abs().max() < CLOSE
            padded = base(rows[row : row + 1], keep[row : row + 1], causal=causal)[0]
            assert (padded[keep[row]] - alone).abs().max() < CLOSE


def test_ids_may_be_int32(preset_name: str, ids: Tensor) -> None:
    base = alive(miniature(preset_name, ntokens=2**20, nhid=8)).base
    large = ids * 20_000
    with torch.no_grad():
        assert torch.equal(base(large.int(), causal=False), base(large, causal=False))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("name", ["lab", "small", "base"])
def test_a_row_of_padding_alone_is_finite(name: str, causal: bool) -> None:
    model = Model(miniature(name), miniature(name).classifier(2))
    ids, keep = torch.zeros(2, 6, dtype=torch.long), torch.zeros(2, 6, dtype=torch.bool)
    keep[0] = True
    logits = model(ids, keep, causal=causal)
    assert logits.isfinite().all()
    logits.sum().backward()
    assert all(each.grad is None or each.grad.isfinite().all() for each in model.parameters())


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("padded", [True, False])
def test_attention_on_request_is_the_fast_path(preset_name: str, positions: str, causal: bool, padded: bool) -> None:
    config = miniature(preset_name, positions=positions)
    base = alive(config).base
    ids, keep = torch.randint(50, (2, 12)), torch.ones(2, 12, dtype=torch.bool)
    if padded:
        keep[0, 7:] = False
    with torch.no_grad():
        fast = base(ids, keep if padded else None, causal=causal)
        hidden, weights = base.attention(ids, keep if padded else None, causal=causal)
    assert (fast - hidden)[keep].abs().max() < CLOSE
    assert [each.shape for each in weights] == [(2, config.nhead, 12, 12)] * config.nlayers
    for each in weights:
        assert torch.allclose(each.sum(-1), torch.ones(2, config.nhead, 12), atol=CLOSE)
        if causal:
            assert not each.triu(1).any()
        if padded:
            assert not each[0, :, :, 7:].any()


def test_attention_weights_are_torchs(ids: Tensor) -> None:
    """Against nn.MultiheadAttention, which can tell its weights too."""
    base = alive(miniature("lab")).base
    encoder = torchs_encoder(base).eval()
    with torch.no_grad():
        x = base.embedding(ids) * math.sqrt(16) + sinusoidal_table(12, 16)
        first = encoder.layers[0]
        _, theirs = first.self_attn(x, x, x, average_attn_weights=False)
        _, ours = base.attention(ids, causal=False)
    assert torch.allclose(ours[0], theirs, atol=CLOSE)


@pytest.mark.parametrize("name", ["small", "base"])
def test_fresh_layers_are_the_identity(name: str, ids: Tensor) -> None:
    """So a deeper model begins as what it stands on."""
    base = Base(miniature(name, dropout=0.0))
    with torch.no_grad():
        assert torch.equal(base(ids, causal=False), base.embedding(ids))


@pytest.mark.parametrize("name", ["lab", "small"])
def test_every_layer_is_read_whatever_its_weights(name: str, ids: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which layers take part does not depend on their values: fresh pre-norm layers are the identity."""
    base = Base(miniature(name)).eval()
    read: list[Layer] = []
    forward = Layer.forward

    def counted(self: Layer, *arguments: object) -> Tensor:
        read.append(self)
        return forward(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Layer, "forward", counted)
    base(ids, causal=False)
    assert read == list(base.layers)


def test_what_others_may_ask_of_a_base() -> None:
    """The tables with their first rows, the layers, and all parameters once, from the top."""
    base = Base(miniature("small"))
    assert [first for first, _ in base.row_tables()] == [0, 50]
    assert [first for first, _ in Base(miniature("lab")).row_tables()] == [0]
    assert base.layer_modules() == list(base.layers)
    *layers, embeddings = base.parameters_by_depth()
    assert [id(each) for each in layers[0]] == [id(each) for each in base.layers[-1].parameters()]
    assert {id(each) for each in embeddings} == {
        id(each) for _, table in base.row_tables() for each in table.parameters()
    }
    assert sum(map(len, (*layers, embeddings))) == len(list(base.parameters()))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((torch.zeros(3, dtype=torch.long),), r"ids are \(3,\)"),
        ((torch.zeros(1, 3),), "float32"),
        ((torch.zeros(1, 3, dtype=torch.long), torch.ones(1, 2, dtype=torch.bool)), r"keep is \(1, 2\)"),
        ((torch.zeros(1, 3, dtype=torch.long), torch.ones(1, 3)), "Expected bool"),
        ((torch.tensor([[1, 50]]),), "50. Expected 0 to 49"),
        ((torch.tensor([[1, -1]]),), "ids contain -1"),
    ],
)
def test_wrong_tensors_are_named(arguments: tuple[Tensor, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Base(miniature("lab"))(*arguments, causal=True)


@pytest.mark.parametrize("kind", POSITIONS)
def test_lower_precision_runs(kind: str, ids: Tensor) -> None:
    """A base cast to bfloat16 takes its masks along."""
    base = alive(miniature("small", positions=kind)).base
    keep = torch.ones_like(ids, dtype=torch.bool)
    keep[0, 8:] = False
    with torch.no_grad():
        full = base(ids, keep, causal=True)
        half = base.to(torch.bfloat16)(ids, keep, causal=True)
        told, _ = base.attention(ids, causal=True)
    assert told.dtype == torch.bfloat16
    assert half.dtype == torch.bfloat16
    assert (full - half.float())[keep].abs().mean() < 0.05 * full[keep].abs().mean()
