"""Distributed training: the process group, reductions over it, and replicated (DDP) or sharded (FSDP2) models.

`torchrun` starts the processes and passes the rendezvous in environment variables. Without it there is one process, and
everything here is free. Scalars that the loop needs (counts, stop requests) are reduced over gloo on the CPU, gradients
over NCCL on GPUs.

    replicate   DistributedDataParallel: every process holds the model, gradients are averaged
    shard       FSDP2: every process holds a shard of every tensor, for models that do not fit into one device
"""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.distributed
from torch import Tensor, nn

from rehead.errors import UserError
from rehead.model.model import Model

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

DeviceName = Literal["auto", "cpu", "cuda", "mps"]

# Long, since the other ranks wait while one encodes a large corpus; torchrun detects a rank that dies.
TIMEOUT = timedelta(hours=12)
FINISH_SECONDS = 30  # that a process waits for the others at its end
_JOINED = itertools.count()  # how often this process has joined: the same number in all of them


@dataclass(frozen=True)
class World:
    """The process group of this run, and the rank of this process."""

    rank: int = 0
    size: int = 1
    device: torch.device = torch.device("cpu")
    restarted: bool = False
    "Whether torchrun restarted this process after a failure."

    @property
    def is_main(self) -> bool:
        """Whether this is the main process, which writes files and prints."""
        return self.rank == 0

    def all_reduce(self, numbers: list[float]) -> list[float]:
        """Sum numbers over all processes; every process gets the sums."""
        if self.size == 1:
            return numbers
        sums = torch.tensor(numbers, dtype=torch.float64)
        torch.distributed.all_reduce(sums)
        return [float(each) for each in sums]

    def barrier(self) -> None:
        """Wait until all processes have reached this point."""
        if self.size > 1:
            torch.distributed.barrier()


@contextmanager
def join_processes(device: DeviceName = "auto") -> Iterator[World]:
    """Join the process group that torchrun started, or run as a single process."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    local = int(os.environ.get("LOCAL_RANK", "0"))
    place = find_device(device, local)
    if size == 1:
        yield World(device=place, restarted=_restarts() > 0)
        return
    if place.type == "cuda":
        torch.cuda.set_device(place)
    backend = "cpu:gloo,cuda:nccl" if place.type == "cuda" else "gloo"
    store, number = _init_process_group(backend, size), next(_JOINED)
    try:
        joined = World(torch.distributed.get_rank(), size, place)
        # Only the node on which a process died counts the restart.
        yield dataclasses.replace(joined, restarted=joined.all_reduce([float(_restarts() > 0)]) > [0.0])
        if store is not None:
            _finish_together(store, f"finished-{number}", size)
    except RuntimeError as error:
        if not _is_peer_failure(error):
            raise
        raise UserError("Another process of this run has failed, so this one stops. See its error message.") from error
    finally:
        torch.distributed.destroy_process_group()


def _init_process_group(backend: str, size: int) -> Store | None:
    """Initialise torch's process group; give the store that its processes share, on one node.

    torchrun keeps one store for all restarts, so a restarted process may find the address of a dead one. On one node
    all processes have the same restart count, so each restart uses its own key prefix; on several nodes they do not
    (docs/scaling.md says what to set there).
    """
    if int(os.environ.get("LOCAL_WORLD_SIZE", "0")) != size:
        torch.distributed.init_process_group(backend, timeout=TIMEOUT)
        return None
    from torch._C._distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    store, rank, _ = next(rendezvous("env://", timeout=TIMEOUT))
    store = PrefixStore(f"restart-{_restarts()}", store)
    torch.distributed.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=TIMEOUT)
    return store


def _finish_together(store: Store, key: str, size: int) -> None:
    """Wait until all processes are done, through torchrun's store and not through their own connections.

    The first to leave closes its connections; one that is still inside the last barrier could take that for a failure.
    """
    store.add(key, 1)
    end = time.monotonic() + FINISH_SECONDS
    while store.add(key, 0) < size and time.monotonic() < end:
        time.sleep(0.01)


def _is_peer_failure(error: RuntimeError) -> bool:
    """Whether this is the error of gloo or NCCL for a peer that has exited."""
    messages = ("closed by peer", "reset by peer", "Broken pipe", "remote process exited")
    return any(message in str(error) for message in messages)


def _restarts() -> int:
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def find_device(name: DeviceName, local: int = 0) -> torch.device:
    """Find a torch device by name; `auto` is the fastest available."""
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        name = "cuda" if available["cuda"] else "mps" if available["mps"] else "cpu"
    if not available[name]:
        others = ", ".join(each for each, is_available in available.items() if is_available)
        raise UserError(f"--device {name}: not available on this machine. Available: {others}.")
    return torch.device(name, local) if name == "cuda" else torch.device(name)


def has_bfloat16(device: torch.device) -> bool:
    """Whether the device has hardware bfloat16 matrix products, so that bfloat16 is faster than float32."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return device.type == "cpu" and bool(torch.cpu.get_capabilities().get("amx_bf16", False))


def fastest_precision() -> Literal["auto", "bfloat16"]:
    """Choose the precision to train layers with in the least time on this machine.

    AVX512-BF16 trains the layers of `lab` 2.3 to 3 times as fast as float32, and reaches the same
    (docs/experiments/lab.md). `auto` takes it only with AMX.
    """
    return "bfloat16" if torch.cpu.get_capabilities().get("avx512_bf16", False) else "auto"


def check_compiler(device: torch.device) -> None:
    """Refuse --compile on a CPU if the C++ compiler that torch would call is missing."""
    usual = {"darwin": "clang++", "win32": "cl"}.get(sys.platform, "g++")
    compiler = os.environ.get("CXX", usual)
    if device.type == "cpu" and shutil.which(compiler) is None:
        raise UserError(f"--compile needs a C++ compiler, but {compiler} was not found. Install it, or drop --compile.")


def replicate(module: nn.Module, world: World) -> nn.Module:
    """Wrap a module in DistributedDataParallel: every process has all weights, and `backward` averages gradients."""
    if world.size == 1:
        return module
    devices = [world.device] if world.device.type == "cuda" else None
    replicas = nn.parallel.DistributedDataParallel
    newer = "forward_sync_buffers" in inspect.signature(replicas).parameters
    buffers: dict[str, Any] = {
        "forward_sync_buffers" if newer else "broadcast_buffers": False
    }  # the buffers are constant
    return replicas(module, device_ids=devices, **buffers)


def shard(module: nn.Module, layers: list[nn.Module], world: World) -> None:
    """Shard every parameter over the processes (FSDP2): each layer's are gathered while it computes, then freed."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(world.device.type, (world.size,))
    for layer in layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(module, mesh=mesh)


def gather_model(model: Model, *, sharded: bool) -> Model:
    """Gather a possibly sharded model. Collective: all processes must call it."""
    if not sharded:
        return model
    state = {name: full_tensor(each).cpu() for name, each in model.state_dict().items()}
    gathered = Model(model.config, model.head_config)
    gathered.load_state_dict(state)
    return gathered


def gather_parameters(module: nn.Module) -> None:
    """Gather parameters of a module that were sharded as part of another one. Collective."""
    for part in module.modules():
        for name, each in part.named_parameters(recurse=False):
            if hasattr(each, "full_tensor"):
                part.register_parameter(name, nn.Parameter(full_tensor(each.detach()).cpu(), each.requires_grad))


def full_tensor(tensor: Tensor) -> Tensor:
    """Gather a possibly sharded tensor. Collective: all processes must call it."""
    full = getattr(tensor, "full_tensor", None)
    return tensor if full is None else full()


def gather_tensor(tensor: Tensor, *, keep: bool) -> Tensor:
    """Gather a possibly sharded tensor; move it to the CPU if `keep`, else discard it, since devices may be small."""
    if not hasattr(tensor, "full_tensor"):
        return tensor.detach()
    full = full_tensor(tensor).detach()
    return full.cpu() if keep else torch.empty(0)


def shard_like(tensor: Tensor, like: Tensor) -> Tensor:
    """Shard a full tensor in the same way as `like`."""
    mesh = getattr(like, "device_mesh", None)
    if mesh is None:
        return tensor
    from torch.distributed.tensor import distribute_tensor

    sharded: Tensor = distribute_tensor(tensor, mesh, like.placements)  # type: ignore[attr-defined]
    return sharded
