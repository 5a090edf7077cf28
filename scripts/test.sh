#!/usr/bin/env bash
# Run the quick tests on two processes, a core for each, and print how much of the package they cover.
# PYTHON is the interpreter; arguments go to pytest. Programs that tests start are not counted in the coverage.
set -uo pipefail
cd "$(dirname "$0")/.."
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
exec "${PYTHON:-python3}" -m pytest -q -m "not slow" -n 2 --dist worksteal --cov=rehead --cov-report=term:skip-covered "$@"
