# overload: two commands do everything on a machine with git, make and Python 3.11:
#   make demo   sets up, runs the worked example over real HTTP, shows the result
#   make test   sets up, runs the tests
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: help demo test test-real test-slow check bench lock clean

help:
	@echo "make demo | test | check | bench | test-real | test-slow"

$(VENV)/.ready: requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: $(VENV)/.ready
	$(BIN)/overload demo

test: $(VENV)/.ready
	$(BIN)/python -m pytest -n 2 -m "not slow and not browser"

check: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/unit/test_layers.py

lock:
	uv pip compile --universal --generate-hashes --no-emit-index-url --no-header --extra dev --python-version 3.11 pyproject.toml -o requirements.lock

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
