# overload. On a machine with git, make and Python 3.11 or newer:
#   make demo        sets up, runs the worked example over real HTTP, shows the result
#   make test        sets up, runs every test that needs only Python
#   make test-real   sets up, runs the tests that need a browser (apt-get install chromium)
#   make test-slow   sets up, runs the campaigns
#   make check       sets up, ruff, mypy --strict, import rules and purity
#   make bench       sets up, prints the figures of docs/performance.md, beside their peers
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest

.PHONY: help demo test test-real test-slow check bench lock clean

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
	$(PYTEST) -n 2 --dist loadgroup -m "not slow and not browser"

test-real: $(VENV)/.ready
	$(PYTEST) -m browser

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
	$(BIN)/python -m benchmarks.stub
	$(BIN)/python -m benchmarks.generator
	$(BIN)/python -m benchmarks.start_times

lock:
	uv pip compile --universal --generate-hashes --no-emit-index-url --no-header --extra dev --python-version 3.11 pyproject.toml -o requirements.lock

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
