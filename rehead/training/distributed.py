"""Several processes as one: who we are, what the others counted, and how a model is spread over them.

`torchrun` starts the processes and tells them about each other in their environment. Without it the world is one
process, and everything here costs nothing. Numbers that the loop needs (counts, whether somebody was told to stop)
go over gloo on the CPU, gradients over NCCL where there are GPUs.

    replicate   DistributedDataParallel: every process holds the model, gradients are averaged
    shard       FSDP2: every process holds a part of every tensor, for models that do not fit
"""

from __future__ import annotations

import dataclasses
import inspect
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import torch
import torch.distributed
from torch import Tensor, nn

from rehead.errors import UserError
from rehead.model.model import Model

DeviceName = Literal["auto", "cpu", "cuda", "mps"]

# Encoding a large corpus happens on one rank while the others wait; a rank that dies is torchrun's to notice.
TIMEOUT = timedelta(hours=12)


@dataclass(frozen=True)
class World:
    """The processes of this run, and which one this is."""

    rank: int = 0
    size: int = 1
    device: torch.device = torch.device("cpu")
    restarted: bool = False
    "Whether torchrun started this process again after another had died."

    @property
    def is_main(self) -> bool:
        """Whether this is the process that writes and speaks."""
        return self.rank == 0

    def all_reduce(self, numbers: list[float]) -> list[float]:
        """Add up what every process counted; all of them get the sums."""
        if self.size == 1:
            return numbers
        sums = torch.tensor(numbers, dtype=torch.float64)
        torch.distributed.all_reduce(sums)
        return [float(each) for each in sums]

    def barrier(self) -> None:
        """Go on when all have come here."""
        if self.size > 1:
            torch.distributed.barrier()


@contextmanager
def join_processes(device: DeviceName = "auto") -> Iterator[World]:
    """Join the processes that torchrun started, or be alone."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    local = int(os.environ.get("LOCAL_RANK", "0"))
    place = find_device(device, local)
    if size == 1:
        yield World(device=place, restarted=_restarts() > 0)
        return
    if place.type == "cuda":
        torch.cuda.set_device(place)
    backend = "cpu:gloo,cuda:nccl" if place.type == "cuda" else "gloo"
    _init_process_group(backend, size)
    try:
        joined = World(torch.distributed.get_rank(), size, place)
        # Only the machine on which a process died counts the restart.
        yield dataclasses.replace(joined, restarted=joined.all_reduce([float(_restarts() > 0)]) > [0.0])
    except RuntimeError as error:
        if not _is_peer_failure(error):
            raise
        raise UserError("Another process of this run has ended, and this one with it. See what it said.") from error
    finally:
        torch.distributed.destroy_process_group()


def _init_process_group(backend: str, size: int) -> None:
    """Find the other processes.

    torchrun keeps one store for all its restarts, and a process that is started again may find the address of one that
    is dead. On one machine all count restarts alike, so each restart gets keys of its own; on several they do not
    (docs/scaling.md says what to set there).
    """
    if int(os.environ.get("LOCAL_WORLD_SIZE", "0")) != size:
        torch.distributed.init_process_group(backend, timeout=TIMEOUT)
        return
    from torch._C._distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    store, rank, _ = next(rendezvous("env://", timeout=TIMEOUT))
    store = PrefixStore(f"restart-{_restarts()}", store)
    torch.distributed.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=TIMEOUT)


def _is_peer_failure(error: RuntimeError) -> bool:
    """Tell whether this is what gloo or NCCL says when a process that it talks to is gone."""
    said = ("closed by peer", "reset by peer", "Broken pipe", "remote process exited")
    return any(words in str(error) for words in said)


def _restarts() -> int:
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def find_device(name: DeviceName, local: int = 0) -> torch.device:
    """Find the device that is meant: the best there is for `auto`."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        name = "cuda" if there["cuda"] else "mps" if there["mps"] else "cpu"
    if not there[name]:
        have = ", ".join(each for each, is_there in there.items() if is_there)
        raise UserError(f"--device {name}: this machine has none that torch can use. It has: {have}.")
    return torch.device(name, local) if name == "cuda" else torch.device(name)


def has_bfloat16(device: torch.device) -> bool:
    """Tell whether matrices of bfloat16 are multiplied in hardware there, and so are worth their rounding."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return device.type == "cpu" and bool(torch.cpu.get_capabilities().get("amx_bf16", False))


def check_compiler(device: torch.device) -> None:
    """Refuse to compile for a CPU where the compiler that torch would call is missing."""
    usual = {"darwin": "clang++", "win32": "cl"}.get(sys.platform, "g++")
    compiler = os.environ.get("CXX", usual)
    if device.type == "cpu" and shutil.which(compiler) is None:
        raise UserError(f"--compile needs a C++ compiler, and {compiler} is not there. Install it, or drop --compile.")


def replicate(module: nn.Module, world: World) -> nn.Module:
    """Have every process train the same weights: gradients are averaged in `backward`."""
    if world.size == 1:
        return module
    devices = [world.device] if world.device.type == "cuda" else None
    replicas = nn.parallel.DistributedDataParallel
    newer = "forward_sync_buffers" in inspect.signature(replicas).parameters
    buffers: dict[str, Any] = {
        "forward_sync_buffers" if newer else "broadcast_buffers": False
    }  # ours are tables that never change
    return replicas(module, device_ids=devices, **buffers)


def shard(module: nn.Module, layers: list[nn.Module], world: World) -> None:
    """Spread every tensor over the processes: a layer's are brought together while it computes, and let go again."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(world.device.type, (world.size,))
    for layer in layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(module, mesh=mesh)


def gather_model(model: Model, *, sharded: bool) -> Model:
    """Bring a model together that may be spread over the processes; all of them must ask for it."""
    if not sharded:
        return model
    state = {name: full_tensor(each).cpu() for name, each in model.state_dict().items()}
    gathered = Model(model.config, model.head_config)
    gathered.load_state_dict(state)
    return gathered


def gather_parameters(module: nn.Module) -> None:
    """Bring the parameters together that another module has spread, and this one has taken over; all must ask."""
    for part in module.modules():
        for name, each in part.named_parameters(recurse=False):
            if hasattr(each, "full_tensor"):
                part.register_parameter(name, nn.Parameter(full_tensor(each.detach()).cpu(), each.requires_grad))


def full_tensor(tensor: Tensor) -> Tensor:
    """Bring a tensor together that may be spread over the processes; all of them must ask for it."""
    full = getattr(tensor, "full_tensor", None)
    return tensor if full is None else full()


def gather_tensor(tensor: Tensor, *, keep: bool) -> Tensor:
    """Bring a spread tensor together in main memory, or only help others to: a device may not hold many whole ones."""
    if not hasattr(tensor, "full_tensor"):
        return tensor.detach()
    full = full_tensor(tensor).detach()
    return full.cpu() if keep else torch.empty(0)


def shard_like(tensor: Tensor, like: Tensor) -> Tensor:
    """Spread a whole tensor over the processes as another one is."""
    mesh = getattr(like, "device_mesh", None)
    if mesh is None:
        return tensor
    from torch.distributed.tensor import distribute_tensor

    spread: Tensor = distribute_tensor(tensor, mesh, like.placements)  # type: ignore[attr-defined]
    return spread
