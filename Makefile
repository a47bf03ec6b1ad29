# overload. On a machine with git, make and Python 3.11 or newer:
#   make demo        sets up, runs the worked example over real HTTP, shows the result
#   make test        sets up, runs every test that needs only Python
#   make test-real   sets up, runs the tests that need more: a browser (apt-get install chromium), real clients and services
#   make test-slow   sets up, runs the campaigns
#   make check       sets up, ruff, mypy --strict, import rules and purity
#   make bench       sets up, prints the figures of docs/performance.md, beside their peers
PYTHON ?= python3
VENV ?= .venv
CLIENTS ?= .venv-clients
SERVICES ?= .venv-services
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest

.PHONY: help demo test test-real test-slow check bench lock clients lock-clients services lock-services clean

help:
	@sed -n '2,7s/^# *//p' Makefile

$(VENV)/.ready: requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "overload needs Python 3.11 or newer: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: $(VENV)/.ready
	$(BIN)/overload demo

test: $(VENV)/.ready
	$(PYTEST) -n 3 --dist loadgroup -m "not slow and not browser and not real" --durations=12

test-real: $(VENV)/.ready $(CLIENTS)/.ready $(SERVICES)/.ready
	OVERLOAD_CLIENTS=$(CLIENTS) OVERLOAD_SERVICES=$(SERVICES) $(PYTEST) -m "browser or real"

# Real clients, judged in tests/real, are kept apart from what overload itself needs.
clients: $(CLIENTS)/.ready

$(CLIENTS)/.ready: tests/real/requirements-clients.txt
	$(PYTHON) -m venv $(CLIENTS)
	$(CLIENTS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

# So is what runs beside the services of docs/examples: the LiteLLM proxy, and a library of limits.
services: $(SERVICES)/.ready

$(SERVICES)/.ready: tests/real/requirements-services.txt
	$(PYTHON) -m venv $(SERVICES)
	$(SERVICES)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

test-slow: $(VENV)/.ready
	$(PYTEST) -m slow -s

check: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(PYTEST) -q tests/unit/test_layers.py

bench: $(VENV)/.ready
	$(BIN)/python -m benchmarks.simulate
	$(BIN)/python -m benchmarks.memory --live
	$(BIN)/python -m benchmarks.judging
	$(BIN)/python -m benchmarks.recorded
	$(BIN)/python -m benchmarks.shadow
	$(BIN)/python -m benchmarks.stub
	$(BIN)/python -m benchmarks.generator
	$(BIN)/python -m benchmarks.start_times
	$(BIN)/python -m benchmarks.distributed

lock:
	uv pip compile --universal --generate-hashes --no-emit-index-url --no-header --extra dev --python-version 3.11 pyproject.toml -o requirements.lock

lock-clients:
	uv pip compile --universal --generate-hashes --no-emit-index-url --no-header --python-version 3.11 tests/real/requirements-clients.in -o tests/real/requirements-clients.txt

lock-services:
	uv pip compile --universal --generate-hashes --no-emit-index-url --no-header --python-version 3.11 tests/real/requirements-services.in -o tests/real/requirements-services.txt

clean:
	rm -rf $(VENV) $(CLIENTS) $(SERVICES) .pytest_cache .mypy_cache .ruff_cache .hypothesis
