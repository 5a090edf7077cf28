#!/usr/bin/env bash
# Run the quick tests in two halves side by side, a core for each: most of their time is programs that start.
# What the first half says is shown when it is done. PYTHON is the interpreter; arguments go to pytest.
set -uo pipefail
cd "$(dirname "$0")/.."
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
rest=$(find tests -mindepth 1 -maxdepth 1 -type d ! -name compare ! -name finetune ! -name __pycache__ | sort)
said=$(mktemp)
trap 'rm -f "$said"' EXIT
"${PYTHON:-python3}" -m pytest -q -m "not slow" -p no:cacheprovider "$@" tests/test_*.py tests/compare tests/finetune > "$said" 2>&1 &
first=$!
trap 'kill $first 2> /dev/null; rm -f "$said"; exit 130' INT TERM
"${PYTHON:-python3}" -m pytest -q -m "not slow" "$@" $rest
second=$?
wait $first
code=$?
cat "$said"
[ $code -eq 0 ] && [ $second -eq 0 ]
