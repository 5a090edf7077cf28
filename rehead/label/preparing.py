"""What happens in the background while somebody labels already: features, then a base, then better features.

    0   of many texts, all but the first are still copied: meanwhile, 1 is done with these
    1   a sample is read by words, in a second or two: varied texts to begin with, words to suggest, clusters
    2   all texts are read by words
    3   a base is pretrained in a process of its own, or those of --from are opened
    4   all texts are read by it

Each step says how far it is. What is read of the texts is kept in the project, and found there the next time.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import threading
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rehead.disk import atomic_file
from rehead.errors import UserError
from rehead.label.blocks import Block
from rehead.label.jobs import Job
from rehead.label.learner import Learner, Pool
from rehead.label.project import TEXTS, Project
from rehead.label.seeds import Seeds

if TYPE_CHECKING:
    from rehead.label.features import FeatureReader
    from rehead.label.opening import Reading
    from rehead.runs.run import Run

SAMPLE = 2_000  # texts read first
WAIT = 2.0  # seconds until the first of many texts are read by themselves
BASE = "base"
FEATURES = "features"


class Stopping(Exception):  # noqa: N818 (not an error)
    """The server ends."""


class Preparing:
    """The thread that prepares, and how far it is."""

    def __init__(self, project: Project, learner: Learner, bases: list[str] | None) -> None:
        self.project, self.learner, self.bases = project, learner, bases
        self.job: Job | None = None
        self.step, self.done, self.total = "reading a sample", 0, 0
        self.notes: list[str] = []
        self.finished = False
        self.base: Path | None = None
        "The base that was pretrained, once it is there."
        self.sample: list[str] = []
        self.sample_vectors: np.ndarray[Any, Any] | None = None
        self._digest: str | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="preparing", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, seconds: float = 10.0) -> None:
        """End: a base that is being pretrained saves a checkpoint."""
        self._ended.set()
        if self.job is not None:
            self.job.stop(seconds)
        if self._thread.is_alive():
            self._thread.join(seconds)

    def describe(self) -> dict[str, Any]:
        """For the page."""
        share = self.job.share if self.job is not None and self.job.state == "running" else None
        if share is None and self.total:
            share = self.done / self.total
        return {"step": self.step, "share": share, "finished": self.finished, "notes": self.notes}

    def _run(self) -> None:
        try:
            self._prepare()
        except Stopping:
            return
        except UserError as error:
            self.notes.append(str(error))
        except Exception as error:
            self.notes.append(f"this is a bug in rehead: {type(error).__name__}: {error}")
            traceback.print_exc()
        self.step, self.finished, self.total = "", True, 0

    def _prepare(self) -> None:
        from rehead.label.features import base_readers  # and so torch: the page is there already

        reading = self.project.reading
        if reading is not None:
            if not reading.ended.wait(WAIT) or reading.error:
                self.learner.use(self.learner.pool, *self._words(self.learner.pool))
            self._await(reading)
            if reading.error:
                first = f"Only the first {len(self.project.store):,} texts are asked."
                raise UserError(f"not all texts could be read: {reading.error} {first}")
        pool = Pool.of(self.project) if reading is not None else self.learner.pool
        blocks, seeds = self._words(pool)
        self.learner.use(pool, blocks, seeds)
        base = self._base()
        if base is not None:
            self.step = "opening the base"
            for reader in base_readers(base, self.sample):
                self.step = f"reading all texts by the base ({reader.view.name})"
                blocks = [*blocks, self._read(reader, pool)]
                self.learner.set_blocks(blocks)

    def _await(self, reading: Reading) -> None:
        """Wait until all texts are there."""
        while not reading.ended.wait(0.2):
            self.step = f"reading your texts, {reading.found.texts:,} so far"
            if self._ended.is_set():
                raise Stopping

    def _words(self, pool: Pool) -> tuple[list[Block], Seeds]:
        """Read texts by their words: a sample at once, then all. Give what may be learnt from, and words to suggest."""
        from rehead.label.features import LEARNT, lsa_reader

        store, ids = self.project.store, pool.ids
        order = np.random.default_rng(self.project.seed).permutation(len(ids))
        some = np.sort(order[:SAMPLE])
        self.sample = list(store.texts(ids[some]))
        quick = lsa_reader(self.sample)
        self.sample_vectors = quick.read_all(self.sample, len(self.sample), self._advance).matrix
        if len(some) == len(ids):
            return [Block(quick.view, None, self.sample_vectors)], Seeds(quick, self.sample)
        if not self.learner.block_names:
            self.learner.seeds = Seeds(quick, self.sample)
            self._first_texts(pool, some)
        learnt = list(store.texts(ids[np.sort(order[:LEARNT])]))
        self.step = "reading all texts by their words"
        reader = quick if len(learnt) == len(some) else lsa_reader(learnt)
        return [self._read(reader, pool)], Seeds(reader, learnt)

    def _first_texts(self, pool: Pool, some: np.ndarray[Any, Any]) -> None:
        """Offer varied texts of the sample, until all texts are read."""
        from rehead.label.choosing import varied

        assert self.sample_vectors is not None  # noqa: S101 (it was read just now)
        found = varied(self.sample_vectors, np.zeros(0, np.int64), 40, self.project.seed)
        self.learner.first = [int(some[place]) for place in found if pool.askable[some[place]]]

    def _read(self, reader: FeatureReader, pool: Pool) -> Block:
        """Read all texts, or take what was kept of them."""
        ids = pool.ids
        state = hashlib.sha256(reader.view.state() + repr(reader.view.config()).encode())
        if reader.view.of_base and reader.tokenizer is not None:
            state.update(str(self._digest).encode())
        state.update(ids.tobytes())
        path = self.project.path / FEATURES / f"{state.hexdigest()[:24]}.npy"
        with contextlib.suppress(OSError, ValueError):
            matrix = np.load(path, allow_pickle=False)
            if matrix.shape == (len(ids), reader.view.columns) and matrix.dtype == np.float32:
                return Block(reader.view, reader.tokenizer, matrix)
        self.done, self.total = 0, len(ids)
        block = reader.read_all(self.project.store.texts(ids), len(ids), self._advance)
        self.total = 0
        with contextlib.suppress(OSError):  # a full disk: they are read again the next time
            path.parent.mkdir(exist_ok=True)
            with atomic_file(path) as partial, partial.open("wb") as file:
                np.save(file, block.matrix)
        return block

    def _advance(self, count: int) -> None:
        self.done += count
        if self._ended.is_set():
            raise Stopping

    def _base(self) -> Run | None:
        """Open the bases that were given, or pretrain one."""
        from rehead.runs.run import load
        from rehead.runs.starting import open_bases

        if self.bases:
            self.step = "opening the bases"
            run = open_bases(self.bases)
            self._digest = run.digest
            return run
        out = self.project.path / BASE
        if not (out / "config.json").exists():
            self.step = "pretraining a base on your texts"
            arguments = ["pretrain", str(self.project.path / TEXTS), "--out", str(out), "--skip-empty"]
            arguments += ["--seed", str(self.project.seed)]
            if (out / "pretrain.json").exists():
                arguments.append("--resume")
            elif out.exists():
                shutil.rmtree(out)
            self.job = Job("pretraining", arguments)
            if not self.job.run():
                if self._ended.is_set():
                    raise Stopping
                self.notes.append(f"no base was pretrained: {self.job.error} Texts are read by their words alone.")
                return None
        self.base = out
        run = load(out)
        self._digest = run.digest
        return run
