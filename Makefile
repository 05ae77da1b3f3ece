# Two commands: `make run` shows the platform at work, `make test` proves it. Both set everything up.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# One stamp for each set of packages: what running needs, with the web interface, with the tests.
RUN_STAMP := $(VENV)/.installed-run
UI_STAMP := $(VENV)/.installed-ui
DEV_STAMP := $(VENV)/.installed-dev
$(RUN_STAMP): EXTRAS := embedded
$(UI_STAMP): EXTRAS := embedded,ui
$(DEV_STAMP): EXTRAS := dev
# A run starts dozens of Python processes: what one has compiled, the next need not.
unexport PYTHONDONTWRITEBYTECODE
# Processes that share the tests; each starts PostgreSQL, Kafka and Spark of its own.
WORKERS ?= 2

.PHONY: run test class-archives test-azure test-fast dev setup lint format clean help

help: ## list the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(DEV_STAMP) ## install everything into .venv (the others install what they need)

# Reinstalled only when the pins change; a stamp is written last, so a broken install is retried.
$(RUN_STAMP) $(UI_STAMP) $(DEV_STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' \
	  || { echo "error: Python 3.11 to 3.13 is needed; $$($(PYTHON) --version) was found. Set PYTHON=/path/to/python3.11." >&2; exit 3; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS)]' \
	  || { echo "error: the packages could not be installed. Check the connection to the package index and run the command again." >&2; exit 4; }
	@touch $@

run: $(RUN_STAMP) ## set up and run the main job on the embedded servers
	$(BIN)/onex demo

# Workers take whole files, in the order of the root conftest: the longest first.
test: $(DEV_STAMP) ## set up, lint, check types and run every test
	$(MAKE) --no-print-directory --jobs=2 --output-sync lint class-archives
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations=25 --durations-min=5

# Half the start of every Spark in the tests; made once, while the code is checked.
class-archives: $(DEV_STAMP)
	$(BIN)/python -m onex_platform_tests.support.class_archives

test-azure: $(DEV_STAMP) ## the stores' tests against Azure's emulator; needs Node
	@command -v npm >/dev/null || { echo "error: npm is needed to fetch Azure's emulator. Install Node." >&2; exit 3; }
	npm install --silent --no-save --no-package-lock --prefix $(VENV)/azurite azurite@3.37.0
	AZURITE=$(VENV)/azurite/node_modules/.bin/azurite-blob \
	  $(BIN)/python -m pytest -q onex_platform_tests/capture/storage -k azure

test-fast: $(DEV_STAMP) ## the inner loop: pure logic only, no servers, under two minutes
	$(BIN)/python -m pytest -q -n $(WORKERS) -m 'not servers'

dev: $(UI_STAMP) ## open the Dagster UI on the embedded servers
	$(BIN)/onex stack dev

lint: $(DEV_STAMP) ## ruff, mypy and the import directions
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(DEV_STAMP) ## apply ruff's formatting and safe fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove the virtual environment and the embedded servers' folder
	-[ ! -x $(BIN)/onex ] || $(BIN)/onex stack down
	rm -rf $(VENV) .onex
