"""The bases that others pretrained in a run: carried in `RUN/bases/NAME/`, or linked.

`config.json` lists each with the SHA-256 of its files, which are checked when the run is loaded. A carried base has no
other files: whatever lies beside them could be read, too. A linked one is read where it is.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rehead.bases.brought import Brought
from rehead.bases.sources import reopen
from rehead.disk import sha256
from rehead.errors import ConfigError, DamagedError, UserError, short_repr

BASES = "bases"
FIELDS = {"source", "license", "link", "files"}


def write_bases(brought: Mapping[str, Brought], directory: Path) -> dict[str, Any]:
    """Copy the files of brought bases into a run, unless they are linked; give its section of `config.json`."""
    section = {}
    for name, each in brought.items():
        section[name] = {
            "source": each.source,
            "license": each.license,
            "link": str(each.root.absolute()) if each.linked else None,
            "files": dict(each.files),
        }
        if each.linked:
            continue
        for file, digest in each.files.items():
            copied = directory / BASES / _folder(name) / file
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(each.root / file, copied)
            if sha256(copied) != digest:
                raise UserError(f"{each.root / file} has changed since it was read. Fine-tune again.")
    return section


def read_bases(root: Path, section: object) -> dict[str, Brought]:
    """Open the brought bases that `config.json` of a run lists, after checking their files."""
    if not isinstance(section, dict):
        raise ConfigError(f"brought is {short_repr(section)}. Expected an object of bases.")
    return {name: _read(root, name, fields) for name, fields in section.items()}


def _read(root: Path, name: str, fields: Any) -> Brought:  # noqa: ANN401 (anything JSON may hold)
    if not re.fullmatch(r"(encoder|static):[A-Za-z0-9_-]{1,60}", name):
        raise ConfigError(f"brought names {short_repr(name)}. Expected encoder:NAME or static:NAME.")
    if not isinstance(fields, dict) or fields.keys() != FIELDS:
        raise ConfigError(f"brought: {name} is {short_repr(fields)}. Expected {', '.join(sorted(FIELDS))}.")
    files, link = fields["files"], fields["link"]
    strings = [fields["source"], *(each for each in (fields["license"], link) if each is not None)]
    if not all(isinstance(each, str) for each in strings):
        raise ConfigError(f"brought: {name}: source, license and link are texts.")
    if not isinstance(files, dict) or not files or not all(isinstance(each, str) for each in files.values()):
        raise ConfigError(f"brought: {name}: files is {short_repr(files)}. Expected the digest of each file.")
    home = root / BASES / _folder(name) if link is None else Path(link)
    if not home.is_dir():
        what = "is missing" if link is None else "was linked (--link), and is not there"
        raise DamagedError(f"{home}: the base {name} {what}. Restore the directory from a copy.")
    if link is None:
        if not home.resolve().is_relative_to(root.resolve()):
            raise DamagedError(f"{home}: the link leads outside its directory. Put a copy there instead.")
        there = {each.relative_to(home).as_posix() for each in home.rglob("*") if not each.is_dir()}
        if more := sorted(there - files.keys()):
            raise DamagedError(f"{home / more[0]}: not a file of the run. Remove it.")
    try:
        return reopen(name, home, files, fields)
    except UserError as error:
        raise DamagedError(str(error)) from None


def _folder(name: str) -> str:
    return name.replace(":", "-")


def brought_digest(brought: Mapping[str, Brought]) -> str:
    """Give one digest for several bases."""
    return hashlib.sha256(" ".join(each.digest for each in brought.values()).encode()).hexdigest()
