"""Two processes train on halves of each step's batch, with sparse gradients reduced by gloo."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from rehead.pretrain.document import Document
from rehead.training.row_optimizer import RowAdagrad, expect_sparse
from tests.pretrain.test_document import config, layered, objective

STEPS, WORLD = 4, 2


def train(made: Document, rank: int, world: int) -> list[float]:
    """Train some steps; give the loss of each, over all processes."""
    tables = made.row_tables()
    expect_sparse(made, tables)
    module = torch.nn.parallel.DistributedDataParallel(made) if world > 1 else made
    others = [each for each in made.parameters() if all(each is not table for table in tables)]
    optimizers: list[torch.optim.Optimizer] = [RowAdagrad(tables, lr=0.1, rates=made.row_rates())]
    if others:
        optimizers.append(torch.optim.SGD(others, lr=0.1))
    losses = []
    for step in range(STEPS):
        batch = made.read(step, rank, world)
        total = torch.tensor([batch.counts["document"], 0.0], dtype=torch.float64)
        loss = module(batch.tensors).losses["document"]
        total[1] = loss.item()
        if world > 1:
            dist.all_reduce(total)
        (loss * world / total[0].item()).backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        losses.append(float(total[1] / total[0]))
    return losses


SHAPES = {"bag": config, "layers": layered}


def one_of_two(rank: int, folder: str) -> None:
    """Train every shape: starting Python and torch takes far longer than the steps."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=WORLD)
    for name, shape in SHAPES.items():
        made = objective(shape())
        losses = train(made, rank, WORLD)
        torch.save((losses, made.state_dict()), f"{folder}/{name}-{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def of_two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two")
    mp.spawn(one_of_two, (str(folder),), nprocs=WORLD)  # type: ignore[no-untyped-call]
    return folder


@pytest.mark.parametrize("shape", list(SHAPES))
def test_two_processes_do_what_one_does(shape: str, of_two: Path) -> None:
    made = objective(SHAPES[shape]())
    losses = train(made, 0, 1)
    found = [torch.load(of_two / f"{shape}-{rank}.pt") for rank in range(WORLD)]
    for (theirs, state), (_, first) in zip(found, found[:1] * 2, strict=True):
        assert theirs == pytest.approx(losses, abs=1e-4)
        for name, each in made.state_dict().items():
            assert torch.equal(state[name], first[name]), name  # both hold the same weights
            assert torch.allclose(state[name], each, atol=1e-3), name
