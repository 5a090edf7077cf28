#!/usr/bin/env bash
# Pin every dependency, extras and development tools included, for every supported Python: `make lock`.
# One pin here is a choice, torch; the packages torch pins to a version of itself (its CUDA libraries) are left to
# torch, so that its CPU build installs without gigabytes of them.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
"${PYTHON:-python3}" -m venv "$tools"
"$tools/bin/pip" install --quiet --disable-pip-version-check uv
echo "torch==2.13.0" > "$tools/choices.txt"
"$tools/bin/uv" pip compile --quiet --universal --python-version 3.10 --no-header --no-annotate \
  --all-extras --group dev --constraint "$tools/choices.txt" pyproject.toml --output-file "$tools/lock.txt"
{
  echo "# Made by \`make lock\` from pyproject.toml; do not edit by hand."
  grep -vE '^(nvidia-|cuda-|triton)' "$tools/lock.txt"
} > requirements.lock
