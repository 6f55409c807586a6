# Every target makes the virtual environment that it needs; Python 3.11, Java 17 and make suffice.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
# The stamps are as new as the last installation: an unchanged lock file installs nothing.
INSTALLED := $(VENV)/.installed
DEMO_INSTALLED := $(VENV)/.installed-demo
DIST_INSTALLED := $(VENV)/.installed-dist
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --quiet --require-hashes
SOURCES := lookup_core service sidelook spark_client demo bench tools tests
# Only what is there: a package that does not exist yet is not an error.
PRESENT := $(wildcard $(SOURCES))
WORKERS ?= 3
# With it set, every sidecar of every test would compile the tree again.
unexport PYTHONDONTWRITEBYTECODE
# Virtual machines that live for seconds are quicker with the quick compiler alone.
QUICK_JAVA := JAVA_TOOL_OPTIONS="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# Files are dealt out in their order, so that the fastest tier still runs first; a file stays whole.
TESTS := $(QUICK_JAVA) $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile \
	--no-loadscope-reorder --max-worker-restart 0
CONFIG ?= examples/parquet.yaml
IMAGE ?= sidelook:dev
SBOM ?= sbom.json
UV_VERSION := 0.13.8
LOCK_VENV := $(VENV)/lock
UV := $(LOCK_VENV)/bin/uv
LOCK_TOOLS := $(UV) pip compile --generate-hashes --no-strip-extras --universal --python-version 3.11 \
	--custom-compile-command "make lock" --quiet
LOCK := $(LOCK_TOOLS) pyproject.toml service/pyproject.toml --excludes requirements/own.txt

.DEFAULT_GOAL := help
.PHONY: help demo check test test-all nightly coverage compat lint types quick dependencies fuzz audit serve bench image sbom dist docs pictures cluster admission k8s-check lock clean

help: ## Show what can be made
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(DEMO_INSTALLED): requirements/demo.txt | $(BIN)/python
	@echo "installing into $(VENV), about a minute"
	$(INSTALL) -r requirements/demo.txt
	touch $(DEMO_INSTALLED)

$(DIST_INSTALLED): requirements/dist.txt | $(BIN)/python
	$(INSTALL) -r requirements/dist.txt
	touch $(DIST_INSTALLED)

# The versions of the demonstration and of `make dist` are among these.
$(INSTALLED): requirements/dev.txt | $(BIN)/python
	@echo "installing into $(VENV), about two minutes"
	$(INSTALL) -r requirements/dev.txt
	touch $(DEMO_INSTALLED) $(DIST_INSTALLED) $(INSTALLED)

demo: $(DEMO_INSTALLED) ## Enrich a year of real flights; LIVE=1 also changes tables during a stream, SERVE=1 stays up afterwards, MODE=ordered|key_ordered|unordered
	$(BIN)/python -m demo $(if $(LIVE),--live) $(if $(SERVE),--serve) $(if $(MODE),--mode $(MODE))

check: $(INSTALLED) ## Lint, types, layers, unit and conformance tests; 90 seconds on two cores
	$(MAKE) --no-print-directory --jobs 2 --output-sync types quick lint

test: $(INSTALLED) ## What a change must pass: check, and one real path each through PostgreSQL, Kafka, Spark, Prometheus, TLS; six minutes
	$(MAKE) --no-print-directory lint types
	$(TESTS) --tier test $(PYTEST_ARGUMENTS)

test-all: $(INSTALLED) ## Everything but the nightly tests: fault matrices, chaos, browser, image, admission by Kubernetes, fuzzing; 35 minutes; WORKERS=3
	$(MAKE) --no-print-directory lint types
	$(TESTS) --tier all $(PYTEST_ARGUMENTS)

nightly: $(INSTALLED) ## Kubernetes clusters of this machine: a stream under faults, broken manifests, aborted runs; root and Go; 25 minutes
	$(BIN)/python -m pytest --tier nightly $(PYTEST_ARGUMENTS)

coverage: $(INSTALLED) ## The same tests with coverage: all branches of the core, 95 % of the rest
	$(TESTS) --tier all --cov --cov-report= $(PYTEST_ARGUMENTS)
	$(BIN)/coverage report --include='lookup_core/*' --fail-under=100
	$(BIN)/coverage report --fail-under=95

lint: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/codespell

types: $(INSTALLED)
	$(BIN)/mypy --strict $(addprefix -p ,$(PRESENT))
	$(BIN)/mypy --strict --python-version 3.10 -p lookup_core -p spark_client

quick: $(INSTALLED)
	$(TESTS) --tier check $(PYTEST_ARGUMENTS)

dependencies: $(INSTALLED) ## List advisories of locked versions; AUDIT_ARGUMENTS="--ignore-vuln …"
	$(BIN)/pip-audit --require-hashes --disable-pip --progress-spinner off $(AUDIT_ARGUMENTS) \
		--requirement requirements/service.txt --requirement requirements/dev.txt

fuzz: $(INSTALLED) ## Send 5,000 requests made from the OpenAPI document, two minutes
	$(BIN)/python -m pytest tests/end_to_end/test_http_fuzzing.py $(PYTEST_ARGUMENTS)

audit: $(INSTALLED) ## Look for stale entries while faults strike and feeds are incomplete, 20 minutes; AUDIT_ARGUMENTS="--mode full --seed …"
	$(BIN)/python -m tools.freshness.audit --feed changelog --standby $(AUDIT_ARGUMENTS)
	$(BIN)/python -m tools.freshness.audit --feed notifications --standby $(AUDIT_ARGUMENTS)
	$(BIN)/python -m tools.freshness.incomplete

serve: $(DEMO_INSTALLED) ## Run the sidecar on Parquet files, no database needed; CONFIG=…
	$(BIN)/python -m service serve --config $(CONFIG)

bench: $(INSTALLED) ## Measure as ratios in one run, 45 minutes; QUICK=1 for small sizes, 15 minutes; PART=speed|one-pass|wide|cold|invalidation|http|growth|row-bytes|fairness|memory|hit-rates|flood
	$(BIN)/python -m bench $(PART) $(if $(QUICK),--quick)

pictures: $(INSTALLED) ## Draw docs/images for dark pages, and take screenshots of a demonstration; six minutes
	$(BIN)/python -m tools.pictures
	$(BIN)/python -m tools.pictures --screenshots

image: ## Build the container image; IMAGE=name:tag
	docker build --tag $(IMAGE) .

sbom: $(INSTALLED) ## Write the bill of materials (CycloneDX) of a built image; IMAGE=name:tag SBOM=file
	container=$$(docker create $(IMAGE)) \
		&& docker export $$container | $(BIN)/python -m tools.image.sbom - > $(SBOM); \
		status=$$?; docker rm $$container > /dev/null; exit $$status

docs: $(INSTALLED) ## Build the documentation site into build/site, strictly; SERVE=1 shows it on 127.0.0.1:8000
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs $(if $(SERVE),serve,build)

dist: $(DIST_INSTALLED) ## Build wheels and source distributions of client and sidecar into dist/
	rm -rf dist
	$(BIN)/pyproject-build --no-isolation --outdir dist .
	$(BIN)/pyproject-build --no-isolation --outdir dist service
	$(BIN)/twine check --strict dist/*

cluster: $(INSTALLED) ## Run a job in a Kubernetes cluster of this machine; root and Go; 10 minutes for the first time; MANIFESTS=…
	$(BIN)/python -m tools.cluster $(if $(MANIFESTS),--manifests $(MANIFESTS))

admission: $(INSTALLED) ## Apply all of k8s/ to API servers of the oldest and the newest Kubernetes, without a node; root and Go
	$(BIN)/python -m tools.cluster.admission

k8s-check: $(INSTALLED) ## Render all of k8s/ and check it strictly, no cluster needed
	$(BIN)/python -m tools.k8s.check

$(UV): Makefile
	test -x $(LOCK_VENV)/bin/python || $(PYTHON) -m venv $(LOCK_VENV)
	$(LOCK_VENV)/bin/python -m pip install --disable-pip-version-check --quiet uv==$(UV_VERSION)
	touch $(UV)

compat: $(INSTALLED) ## Test the client with each supported PySpark and Python, and print the matrix; NAMES=…
	$(BIN)/python -m tests.compat $(NAMES)

lock: $(UV) ## Update the lock files from both pyproject.toml
	$(LOCK) --extra spark --extra tracing --group dev --output-file requirements/dev.txt
	$(LOCK) --extra spark --group demo --constraint requirements/dev.txt \
		--output-file requirements/demo.txt
	$(LOCK) --extra tracing --constraint requirements/dev.txt --output-file requirements/service.txt
	$(LOCK_TOOLS) --group dist --constraint requirements/dev.txt --output-file requirements/dist.txt

clean: ## Remove what can be made again, except .venv
	rm -rf .cache .coverage* .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist out
