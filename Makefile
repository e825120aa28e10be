# Everything bootstraps itself: python3 (3.11 or newer), git and make are enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint fmt bench bench-faults lock clean

help:            ## show the words this Makefile knows
	@grep -E '^[a-z-]+: .*## ' Makefile | sed -E 's/: .*## /\t/'

setup: $(READY)  ## create .venv with the locked dependencies

$(READY): pyproject.toml requirements.lock toolkit/__init__.py
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "tokenproof needs Python 3.11 or newer, found " + sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	@touch $@

demo: $(READY)   ## generate a small B3 from a simulated server, audit it, merge it
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh scripts/demo.sh

test: $(READY)   ## run all tests
	$(BIN)/python -m pytest

lint: $(READY)   ## ruff, formatting, mypy strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

fmt: $(READY)    ## format and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)  ## measure speed and memory of audit and generate beside the usual loops
	$(BIN)/python scripts/bench_audit.py
	$(BIN)/python scripts/bench_generate.py

bench-faults: $(READY)  ## put faults of every kind into 200,000 good rows, and write docs/faults.md
	PYTHONPATH=. $(BIN)/python scripts/bench_faults.py --write docs/faults.md

lock:            ## renew requirements.lock from pyproject.toml
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --group dev pyproject.toml -o requirements.lock

clean:           ## remove the environment and what the demo made
	rm -rf $(VENV) train/demo reports/B3_demo
	find datasets/B3_demo -mindepth 1 ! -name prompts.jsonl -delete
