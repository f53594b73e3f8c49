# Two commands do everything: `make serve` and `make test`. Each sets up .venv/ first, once.
#
#   make serve ARGS="--bind 127.0.0.1:9000"     flags for the server
#   make test  ARGS="tests/core -x"             arguments for pytest
#   make serve TORCH=cuda|system                another torch than a CPU build (deploy/install.py)
#   make serve PYTHON=python3.12                another Python

PYTHON ?= python3
ARGS ?=
BIN := .venv/bin
comma := ,
export TORCH

.PHONY: help serve test check format setup-serve setup-test clean

help:
	@sed -n '/^#/!q;s/^# \{0,1\}//p' Makefile

serve: setup-serve
	@exec $(BIN)/seawall serve $(ARGS)

test: check
	@echo "==> pytest: $(or $(ARGS),every test$(comma) with branch coverage)"
	@$(BIN)/python -m pytest $(or $(ARGS),--cov)

check: setup-test
	@echo "==> ruff check: lint"
	@$(BIN)/ruff check
	@echo "==> ruff format --check: layout"
	@$(BIN)/ruff format --check
	@echo "==> mypy: strict types"
	@$(BIN)/mypy
	@echo "==> lint-imports: the laws of the house"
	@$(BIN)/lint-imports --no-logo --no-cache

format: setup-test
	@$(BIN)/ruff check --fix-only
	@$(BIN)/ruff format

setup-serve setup-test:
	@$(PYTHON) deploy/install.py $(@:setup-%=%)

clean:
	rm -rf .venv .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache dist
	rm -rf tests/pictures/panels/node_modules tests/pictures/panels/dist
	find service tests deploy dashboards -name __pycache__ -type d -prune -exec rm -rf {} +
