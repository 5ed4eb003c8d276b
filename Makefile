# The words: demo test deploy-test check sim faults bench bench-broker kernel. Everything is installed into .venv on first use, from requirements.lock.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP_FLAGS := --quiet --disable-pip-version-check
INSTALL := $(BIN)/python -m pip install $(PIP_FLAGS) -c requirements.lock

.PHONY: demo test deploy-test check sim faults bench bench-broker kernel install lock clean

demo: $(VENV)/.demo ## Run the whole pipeline on this machine and compare both ends
	@$(BIN)/tidemill demo $(ARGS)

test: $(VENV)/.dev ## Every test
	$(BIN)/python -m pytest -m "not integration" -n auto --dist loadfile $(ARGS)
	$(BIN)/python -m pytest -m "integration and not deploy" -n 4 --dist loadfile $(ARGS)

deploy-test: $(VENV)/.dev ## Images and compose deployment in real containers, by the commands of deploy/README.md
	$(BIN)/python -m pytest -q -m deploy tests/deploy tests/tidemill/testing $(ARGS)

check: $(VENV)/.dev ## Format, lint, types, layers, generated code, tidy rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tidemill.core.wire.generate --check
	$(BIN)/python -m pytest -q tests/test_tidy.py

sim: $(VENV)/.dev ## The machines under a seeded simulator; SEEDS=10000 for so many worlds around whole brokers and clusters
	$(if $(SEEDS),$(BIN)/python -m tests.sim.world --seeds $(SEEDS),$(BIN)/python -m pytest -q tests/sim) $(ARGS)

faults: $(VENV)/.dev ## Three broker processes that are broken in every way for five minutes, as root; ARGS="--minutes 30 --seed 7 --kafka"
	@$(BIN)/python -m tests.faults $(ARGS)

bench: $(VENV)/.dev ## One JSON object per benchmark, peers in the same run where they can be started
	$(BIN)/python -m benchmarks $(ARGS)

bench-broker: $(VENV)/.dev ## The broker beside Apache Kafka over a grid of settings, and how its cost grows: hours
	$(BIN)/python -m benchmarks broker_grid broker_growth --rounds 5 $(ARGS)

install: $(VENV)/.dev

kernel: $(VENV)/bin/python ## The Spark reader's compiled kernel anew, after a change of its source; needs a C compiler
	$(BIN)/python spark_sink/kernel_build.py

lock: ## Resolve every dependency anew into requirements.lock
	$(BIN)/python -m pip install $(PIP_FLAGS) uv
	$(BIN)/uv pip compile --quiet --universal --all-extras --python-version 3.11 --no-header --no-annotate -o requirements.lock pyproject.toml

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit("tidemill needs Python 3.11 or newer: set PYTHON=python3.x") if sys.version_info < (3, 11) else None'
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { echo "Python's venv module is missing: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install $(PIP_FLAGS) --upgrade pip

$(VENV)/.demo: pyproject.toml requirements.lock | $(VENV)/bin/python
	@echo "Installing into $(VENV): about a minute, once" >&2
	$(INSTALL) -e '.[demo]'
	@touch $@

$(VENV)/.dev: pyproject.toml requirements.lock | $(VENV)/bin/python
	$(INSTALL) -e '.[dev]'
	@touch $@ $(VENV)/.demo

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
