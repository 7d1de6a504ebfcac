# Everything here sets itself up from Python 3.11+ alone: `make demo`, `make test`, `make lint`, `make conformance`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q -q
READY := $(VENV)/.ready
FACTS ?= ../shared/facts
ORACLE ?= .venv-conformance
DEMO ?= build/demo

.DEFAULT_GOAL := help
.PHONY: help demo test lint format conformance lock clean

help: ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12")'
	@echo "Setting up $(VENV) (once)..."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install --require-hashes -r requirements.lock
	@$(PIP) install --no-deps --no-build-isolation -e .
	@$(BIN)/python -m compileall -q src
	@touch $@

demo: $(READY) ## plan Kimi-K3 on B300, rehearse the plan without a GPU, write an HTML report
	@mkdir -p $(DEMO)
	@$(BIN)/perilune plan --hardware b300 --mode unified --strategy balanced --isl 8192 --osl 1024 --concurrency 64 \
		-o $(DEMO)/plan.yaml
	@$(BIN)/perilune plan $(DEMO)/plan.yaml
	@echo
	@$(BIN)/perilune rehearse $(DEMO)/plan.yaml --html $(DEMO)/report.html
	@echo "Open $(abspath $(DEMO)/report.html) in a browser."

test: $(READY) ## the whole test suite
	@$(BIN)/python -m pytest -n auto -q -m "not conformance"

lint: $(READY) ## style, formatting, types and layering
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

format: $(READY) ## rewrite the code in the project's format
	@$(BIN)/ruff check --fix-only -q .
	@$(BIN)/ruff format -q .

conformance: $(READY) ## compare with the real SGLang 0.5.23 (builds a throw-away environment)
	@test -d $(FACTS)/memory || { echo "No reference in FACTS=$(FACTS): it must hold memory/cases.json."; exit 2; }
	@PYTHON=$(PYTHON) $(BIN)/python scripts/conformance_env.py $(ORACLE)
	@PERILUNE_ORACLE=$(abspath $(ORACLE)) PERILUNE_FACTS=$(abspath $(FACTS)) \
		$(BIN)/python -m pytest -q -m conformance tests/conformance

lock: $(READY) ## resolve the locked dependencies again
	@$(BIN)/python -m pip -q install uv
	@$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
		--extra dev pyproject.toml -o requirements.lock

clean: ## remove what the targets made
	@rm -rf $(VENV) $(ORACLE) .pytest_cache .mypy_cache .ruff_cache .hypothesis
