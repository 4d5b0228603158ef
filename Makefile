# Python 3.11 or newer, pip, make and git are all it takes: everything else is installed into .venv, which is renewed
# when a pyproject.toml changes. ARGS is passed on, for example `make test ARGS="-k offload -x"`.

PYTHON ?= python3
ARGS ?=
# How long `make soak` and `make fuzz` last.
MINUTES ?= 5
# How often `make faults` brings about each fault.
TRIALS ?= 100
# One process for each processor; what shares servers stays in one. By default, what has the fewest tests would come last,
# and among that are the longest ones: all but one process would wait for it. `make test PARALLEL=` runs everything in one.
PARALLEL ?= --numprocesses auto --dist loadscope --no-loadscope-reorder

BACKENDS := $(wildcard backends/*/pyproject.toml)
PROJECTS := pyproject.toml $(BACKENDS)
# The backends are installed from the tree too, so that the core's extras find them here and not in an index.
TREE := -e '.[all]' $(patsubst %/pyproject.toml,-e ./%,$(BACKENDS))
COMPOSE := docker compose -f docker-compose.test.yml
INSTALL := -m pip install --quiet --disable-pip-version-check
# Newer than the pip that Python brings, for `--group`.
NEW_PIP := $(INSTALL) --upgrade 'pip>=25.1'

# Nothing here reports to anybody, and nothing but an installation uses the network.
export HAYSTACK_TELEMETRY_ENABLED := false

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo serve test test-docker test-floor faults soak fuzz lint types bench wheels wheel-check clean

help: ## List these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

demo: .venv/.demo ## Run an agent whose context compacts itself: no key, no network
	@echo "Running examples/demo.py"
	@.venv/bin/python examples/demo.py $(ARGS)

serve: .venv/.serve ## Run the server of examples/server: FastAPI, with Redis if there is one
	@.venv/bin/python -m examples.server

test: .venv/.develop ## Run the whole test suite
	@echo "Running the tests"
	@.venv/bin/python -m pytest $(PARALLEL) $(ARGS)

test-docker: .venv/.develop ## Run the conformance tests against the servers of docker-compose.test.yml
	@$(COMPOSE) up --detach --wait
	@status=0; \
	for server in redis://127.0.0.1:16399/0 redis://127.0.0.1:16398/0; do \
		HAYBALER_TEST_REDIS_URL=$$server .venv/bin/python -m pytest tests/stores/test_redis_conformance.py $(ARGS) || status=1; \
	done; \
	HAYBALER_TEST_S3_ENDPOINT=http://127.0.0.1:18333 .venv/bin/python -m pytest tests/stores/test_s3_conformance.py $(ARGS) \
		|| status=1; \
	$(COMPOSE) down; exit $$status

test-floor: .venv-floor/.test ## Run the tests with the lowest supported version of each dependency
	@echo "Running the tests with the versions in tests/floors.txt"
	@.venv-floor/bin/python -m pytest $(PARALLEL) $(ARGS)

soak: .venv/.develop ## Let many users work on real stores for MINUTES (5), and see that nothing is lost or left behind
	@.venv/bin/python -m tests.soak --minutes $(MINUTES) $(ARGS)

fuzz: .venv/.develop ## Feed what parses references, records, pointers and URLs with made-up input for MINUTES (5)
	@.venv/bin/python -m tests.fuzz --minutes $(MINUTES) $(ARGS)

faults: .venv/.develop ## Break servers, disks and processes in the middle of Agents' runs, TRIALS (100) times each
	@.venv/bin/python -m tests.faults.injection --trials $(TRIALS) $(ARGS)

lint: .venv/.develop ## Check style and formatting
	@.venv/bin/python -m ruff check .
	@.venv/bin/python -m ruff format --check .

types: .venv/.develop ## Check the types of core, backends, tests and the server, strictly
	@.venv/bin/python -m mypy

bench: .venv/.develop ## Measure, beside Haystack's own classes and the raw operations
	@.venv/bin/python -m benchmarks $(ARGS)

wheels: .venv/.develop ## Build wheels and source distributions into dist/
	@rm -rf dist
	@for project in . $(patsubst %/pyproject.toml,%,$(BACKENDS)); do \
		echo "Building $$project"; .venv/bin/python -m build --outdir dist "$$project" >/dev/null || exit 1; \
	done
	@ls dist

wheel-check: wheels ## Install the wheels into an empty environment and run the conformance kit there
	@PYTHON='$(PYTHON)' bash scripts/wheel_check.sh

clean: ## Remove environments, caches and what was built
	rm -rf .venv .venv-floor .vocabulary .fuzz .hypothesis .mypy_cache .pytest_cache .ruff_cache .coverage dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.demo: $(PROJECTS)
	@echo "Installing haybaler and what the demo needs into .venv"
	@$(PYTHON) -m venv .venv
	@.venv/bin/python $(NEW_PIP)
	@.venv/bin/python $(INSTALL) $(TREE) --group demo
	@touch $@

.venv/.serve: .venv/.demo
	@echo "Installing what the server needs into .venv"
	@.venv/bin/python $(INSTALL) $(TREE) --group server
	@touch $@

.venv/.develop: .venv/.demo
	@echo "Installing what tests and checks need into .venv"
	@.venv/bin/python $(INSTALL) $(TREE) --group test --group lint --group build
	@touch $@

.venv-floor/.test: $(PROJECTS) tests/floors.txt
	@echo "Installing the lowest supported versions into .venv-floor"
	@$(PYTHON) -m venv --clear .venv-floor
	@.venv-floor/bin/python $(NEW_PIP)
	@.venv-floor/bin/python $(INSTALL) $(TREE) --group test --constraint tests/floors.txt
	@touch $@
