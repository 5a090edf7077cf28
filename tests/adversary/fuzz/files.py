"""Coverage-guided fuzzing of what is read from files: tables of labelled texts, and runs.

    python -m tests.adversary.fuzz.files csv -runs=10000 tests/adversary/fuzz/corpus/csv

The first argument names a target, the others are those of libFuzzer. A target takes bytes and passes them on as a file;
anything but a result or a `UserError` of one line is a finding; so is an input that takes ten seconds or a gigabyte.
The corpora hold a few small files of each kind. `test_fuzz_files.py` runs all targets.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"
LIMITS = ["-timeout=10", "-rss_limit_mb=1024", "-max_len=32768", "-len_control=0", "-print_final_stats=1"]


def table_target(kind: str, folder: Path) -> Callable[[bytes], None]:
    """Read labelled texts of a format. The first byte chooses options, the others are the file."""
    from rehead.errors import UserError
    from rehead.text.documents import ReadOptions
    from rehead.text.labelled import read_examples

    file = folder / f"fuzzed.{kind}"

    def target(data: bytes) -> None:
        choice = data[0] if data else 0
        options = ReadOptions(
            single_label=bool(choice & 1),
            skip_empty=bool(choice & 2),
            no_quotes=bool(choice & 4) and kind == "csv",
            text_column="a" if choice & 8 else None,
            label_column="b" if choice & 8 else None,
            max_document_mb=0.002,
        )
        file.write_bytes(data[1:])
        try:
            found = read_examples([str(file)], options, check=False)
        except UserError as error:
            _check_line(str(error))
            return
        assert len(found.texts) == len(found.labels) == len(found.sources)
        for labels in found.labels:
            for label in labels:
                label.encode()
        for note in found.notes:
            _check_line(note)

    return target


def run_target(folder: Path) -> Callable[[bytes], None]:
    """Load a run, correctly signed, of which one file is fuzzed: the first byte chooses which."""
    from rehead.disk import parse_json, read_checksummed_json, sha256, write_checksummed_json
    from rehead.errors import UserError
    from rehead.runs.run import FILES, load, save
    from tests.use.tiny_classifier import tiny_classifier

    path = save(tiny_classifier(), folder / "run")
    sound = {name: (path / name).read_bytes() for name in FILES}
    config = read_checksummed_json(path / "config.json")

    def target(data: bytes) -> None:
        choice, content = (data[0] % (len(FILES) + 1) if data else 0), data[1:]
        stated = dict(config)
        for number, name in enumerate(FILES):
            (path / name).write_bytes(content if number == choice else sound[name])
        stated["files"] = {name: sha256(path / name) for name in FILES}
        try:
            if choice == len(FILES):
                fields = parse_json(content, "config.json")
                stated |= fields if isinstance(fields, dict) else {}
            write_checksummed_json(path / "config.json", stated)
        except (UserError, ValueError):
            return
        try:
            run = load(path)
        except UserError as error:
            _check_line(str(error))
            return
        assert all(bool(each.isfinite().all()) for each in run.model.state_dict().values())

    return target


def _check_line(line: str) -> None:
    assert line.isprintable(), line


TARGETS: dict[str, Callable[[Path], Callable[[bytes], None]]] = {
    "csv": lambda folder: table_target("csv", folder),
    "jsonl": lambda folder: table_target("jsonl", folder),
    "parquet": lambda folder: table_target("parquet", folder),
    "run": run_target,
}


def main() -> None:
    """Fuzz the target that the first argument names."""
    import atheris

    with atheris.instrument_imports(include=["rehead"]):
        import rehead.runs.run
        import rehead.text.labelled  # noqa: F401 (for its instrumentation)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        target = TARGETS[sys.argv[1]](Path(folder))
        atheris.Setup([sys.argv[0], *LIMITS, *sys.argv[2:]], target)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
