# Two commands: `make run` shows the platform at work, `make test` proves it. Both set everything up.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Processes that share the tests; each starts PostgreSQL, Kafka and Spark of its own.
WORKERS ?= 2

.PHONY: run test test-fast dev setup lint format clean help

help: ## list the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(STAMP) ## install everything into .venv (done by the others when needed)

# Reinstalled only when the pins change; the stamp is written last, so a broken install is retried.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' \
	  || { echo "error: Python 3.11 to 3.13 is needed; $$($(PYTHON) --version) was found. Set PYTHON=/path/to/python3.11." >&2; exit 3; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]' \
	  || { echo "error: the packages could not be installed. Check the connection to the package index and run the command again." >&2; exit 4; }
	@touch $@

run: $(STAMP) ## set up and run the main job on the embedded servers
	$(BIN)/onex demo

test: $(STAMP) ## set up, lint, check types and run every test
	$(MAKE) --no-print-directory lint
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --durations=25 --durations-min=5

test-fast: $(STAMP) ## the inner loop: pure logic only, no servers, under two minutes
	$(BIN)/python -m pytest -q -n $(WORKERS) -m 'not servers'

dev: $(STAMP) ## open the Dagster UI on the embedded servers
	$(BIN)/onex stack dev

lint: $(STAMP) ## ruff, mypy and the import directions
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP) ## apply ruff's formatting and safe fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove the virtual environment and the embedded servers' folder
	-[ ! -x $(BIN)/onex ] || $(BIN)/onex stack down
	rm -rf $(VENV) .onex
