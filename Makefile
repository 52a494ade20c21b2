# Works on a fresh machine with Python 3.11+ and make; every target sets up what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TEST_ARGS ?=

.PHONY: demo test lint long clean

$(BIN)/.installed: pyproject.toml setup.py $(wildcard sim/*/_*.c workloads/_*.c)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	touch $@

$(BIN)/.installed-dev: pyproject.toml $(BIN)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@

demo: $(BIN)/.installed  ## run the quickstart experiment and write its report
	$(BIN)/kvsim run configs/quickstart.yaml --report

lint: $(BIN)/.installed-dev  ## style, types and import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

test: lint  ## everything but the long tests
	sh tools/browser.sh
	$(BIN)/pytest -n 2 -m "not long" $(TEST_ARGS)

long: $(BIN)/.installed-dev  ## the long tests alone
	$(BIN)/pytest -m long $(TEST_ARGS)

clean:
	rm -rf $(VENV) build *.egg-info sim/fast/*.so workloads/*.so
