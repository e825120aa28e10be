# Everything bootstraps itself: python3 (3.11 or newer), git and make are enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TRAINERS := .venv-trainers
TRAINERS_READY := $(TRAINERS)/.ready

.DEFAULT_GOAL := help
.PHONY: help setup setup-trainers setup-bench demo test test-gx-oldest lint fmt bench bench-growth chaos storms bench-faults bench-merge lock clean

help:            ## show the words this Makefile knows
	@grep -E '^[a-z-]+: .*## ' Makefile | sed -E 's/: .*## /\t/'

setup: $(READY)  ## create .venv with the locked dependencies

$(READY): pyproject.toml requirements.lock toolkit/__init__.py
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "tokenproof needs Python 3.11 or newer, found " + sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	@touch $@

setup-trainers: $(TRAINERS_READY)  ## create .venv-trainers, where the trainers' own readers are tested (1.5 GB)

$(TRAINERS_READY): requirements-trainers.txt
	$(PYTHON) -m venv $(TRAINERS)
	$(TRAINERS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements-trainers.txt
	@touch $@

setup-bench: $(READY)  ## add the packages that benches compare with to .venv (datasets, DuckDB, pointblank)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-bench.lock

demo: $(READY)   ## generate a small B3 from a simulated server, audit it, merge it
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh scripts/demo.sh

test: $(READY)   ## run all tests; those of the trainers' readers need `make setup-trainers`
	$(BIN)/python -m pytest

test-gx-oldest:  ## test the polars engine with the oldest Great Expectations that is supported
	@PYTHON="$(PYTHON)" sh scripts/gx_oldest.sh

lint: $(READY)   ## ruff, formatting, mypy strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

fmt: $(READY)    ## format and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup-bench  ## measure speed and memory of audit and generate beside the usual loops
	$(BIN)/python scripts/bench_audit.py
	$(BIN)/python scripts/bench_generate.py
	$(BIN)/python scripts/bench_gx.py

chaos: $(READY)  ## fifty seeded runs with every fault and kill -9, our books against the server's, as a table
	$(BIN)/python scripts/chaos.py

storms: $(READY)  ## play the limiter against every kind of rate limit, on a simulated clock (LIVE=1: a real run, too)
	PYTHONPATH=. $(BIN)/python scripts/storms.py $(if $(LIVE),--live)

bench-growth: $(READY)  ## time and memory of an audit at 1, 10 and 100 million ids (SIZES="1 10 100 300" for more)
	$(BIN)/python scripts/bench_audit.py --growth $(or $(SIZES),1 10 100)

bench-faults: $(READY)  ## put faults of every kind into 200,000 good rows, and write docs/faults.md
	PYTHONPATH=. $(BIN)/python scripts/bench_faults.py --write docs/faults.md

bench-merge: setup-bench  ## merge a million rows beside datasets and DuckDB
	$(BIN)/python scripts/bench_merge.py

lock:            ## renew requirements.lock from pyproject.toml
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --group dev pyproject.toml -o requirements.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --group bench --constraint requirements.lock -o requirements-bench.lock

clean:           ## remove the environment and what the demo made
	rm -rf $(VENV) $(TRAINERS) train/demo export/demo reports/B3_demo
	find datasets/B3_demo -mindepth 1 ! -name prompts.jsonl -delete
