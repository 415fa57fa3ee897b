# The commands of this repository. Each works alone on a fresh clone with Python 3.11+, git and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
VERSION = $(shell cat VERSION)
PROJECTS := pyproject.toml sidecar/pyproject.toml client/pyproject.toml
SOURCES := gangctl sidecar/gangsidecar sidecar/static client/gangclient tests bench examples e2e

E2E_DIR := $(or $(TMPDIR),/tmp)/gangctl-e2e

.PHONY: help demo test lint docs wheels e2e e2e-slow e2e-queues e2e-frameworks e2e-versions e2e-up e2e-down bench pictures simulate mutants generate scenarios clean

help: ## Say what each command does
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(VENV)/.ready: requirements.txt VERSION $(PROJECTS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, this is " + sys.version)'
	@echo "Setting up $(VENV) (once, about a minute) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.txt
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e client -e sidecar -e .
	@touch $@

$(VENV)/.e2e: $(VENV)/.ready e2e/requirements.txt
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r e2e/requirements.txt
	@touch $@

# With what e2e imports, so that mypy reads the same types everywhere.
$(VENV)/.lint: $(VENV)/.e2e requirements-lint.txt
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-lint.txt
	@touch $@

demo: $(VENV)/.ready ## Train with 4 members, kill one worker, make another leave, end with the same loss bit by bit
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python examples/demo.py

test: $(VENV)/.ready ## Lint, types, layers, and all tests but the ones on a cluster
	@$(MAKE) --no-print-directory lint
	@$(BIN)/pytest -n auto tests/core tests/simulation
	@$(BIN)/pytest -n 3 --ignore tests/core --ignore tests/simulation

lint: $(VENV)/.lint ## Formatting, ruff with all rules, mypy strict, layers, GitHub's files, prose, the documentation site
	@$(BIN)/ruff format --check $(SOURCES)
	@$(BIN)/ruff check $(SOURCES)
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/zizmor --offline --no-progress --quiet --persona pedantic .github
	@$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*
	@$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/[!c]*
	@$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
	@$(BIN)/check-jsonschema --quiet --builtin-schema vendor.dependabot .github/dependabot.yml
	@$(BIN)/proselint check --output-format compact *.md docs e2e/README.md .github
	@$(BIN)/pytest -q tests/test_words.py tests/test_file_length.py
	@$(MAKE) --no-print-directory docs

docs: $(VENV)/.lint ## Build the documentation site into build/site; a broken link fails
	@$(BIN)/zensical build --strict --clean
	@$(BIN)/pytest -q tests/test_docs.py

wheels: $(VENV)/.ready ## Build the wheels of all distributions into build/wheels
	@rm -rf build/wheels
	@$(BIN)/pip --quiet --disable-pip-version-check wheel --no-deps --no-build-isolation --wheel-dir build/wheels $(patsubst %,./%,$(dir $(PROJECTS)))

e2e: $(VENV)/.e2e ## Tests on real Kubernetes (root; or any cluster: KUBECONFIG=...): make e2e E2E="-k name"
	@$(BIN)/pytest e2e --ignore e2e/queues --ignore e2e/frameworks --ignore e2e/versions --timeout 300 $(or $(E2E),-m "not slow")

e2e-slow: ## The tests that make e2e leaves out, since they wait for minutes: frozen and unreachable parts, certificates
	@$(MAKE) --no-print-directory e2e E2E="-m slow"

e2e-queues: $(VENV)/.e2e ## Gangs with real queues and schedulers, built first (see e2e/README.md): make e2e-queues E2E="-k kueue"
	@$(BIN)/pytest e2e/queues --timeout 300 $(E2E)

e2e-frameworks: $(VENV)/.e2e ## The examples of frameworks with their real packages, above Debian's PyTorch
	@$(BIN)/pytest e2e/frameworks --timeout 600 $(E2E)

e2e-versions: $(VENV)/.e2e ## The same examples with the oldest and the newest packages, on this machine (10 GB, no root)
	@$(BIN)/pytest e2e/versions --timeout 900 $(E2E)

e2e-up: $(VENV)/.ready ## Start a cluster that stays, for make e2e and for manual tests (see e2e/README.md)
	@$(BIN)/python -m e2e.cluster --dir $(E2E_DIR) up

e2e-down: $(VENV)/.ready ## Take that cluster down
	@$(BIN)/python -m e2e.cluster --dir $(E2E_DIR) down

bench: $(VENV)/.e2e ## What docs/benchmarks.md quotes: restarts here, decisions, and (as root) restarts on real Kubernetes
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python bench/restart.py
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m bench.tracing
	@$(BIN)/python bench/decide.py
	@$(BIN)/python bench/metrics.py
	@if [ $$(id -u) = 0 ]; then $(BIN)/python -m bench.cluster && $(BIN)/python -m bench.first_step && $(BIN)/python -m bench.first_start && $(BIN)/python -m bench.nodes; else echo "bench/cluster.py, first_step.py, first_start.py and nodes.py need root"; fi

pictures: $(VENV)/.e2e ## Record docs/pictures anew: a restart of the demo in a terminal and in a browser; as root, the dashboard
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m bench.pictures
	@$(BIN)/python -m bench.page_picture
	@if [ $$(id -u) = 0 ]; then $(BIN)/python -m bench.dashboard_picture; else echo "bench/dashboard_picture.py needs root"; fi

simulate: $(VENV)/.ready ## A long simulation: make simulate SECONDS=600 SEED=7
	@$(BIN)/python tests/simulation/long_run.py --seconds $(or $(SECONDS),60) --seed $(or $(SEED),1)

mutants: $(VENV)/.ready ## Show that the tests have teeth: each deliberate mistake must be caught
	@$(BIN)/python tests/simulation/run_mutants.py --only "$(ONLY)" --jobs $(or $(JOBS),2)

generate: $(VENV)/.ready ## Write what is made from something else: the CRD, the reference pages, the version in other files
	@sed -i -E 's/^(version|appVersion): .*/\1: $(VERSION)/' charts/gangctl/Chart.yaml
	@sed -i -E 's/"(gang[a-z]+)==[^"]+"/"\1==$(VERSION)"/' $(PROJECTS)
	@$(BIN)/python -m gangctl.api.crd > crds/gangctl.io_gangjobs.yaml
	@cp crds/gangctl.io_gangjobs.yaml charts/gangctl/files/crd.yaml
	@$(BIN)/python -m gangctl.api.gangjob_reference > docs/reference/gangjob.md
	@$(BIN)/python -m gangctl.api.event_reference > docs/reference/events.md
	@$(BIN)/python -m gangctl.cluster.kube.nodes.reference > docs/reference/node-signals.md
	@$(BIN)/python -m gangctl.cli.failures.explained > docs/reference/faults.md
	@$(BIN)/python -m gangctl.api.change_types > $(VENV)/changes.py && mv $(VENV)/changes.py gangctl/api/changes.py
	@$(BIN)/python -m gangctl.cluster.kube.pod.template_fields > $(VENV)/pod_fields.json && mv $(VENV)/pod_fields.json gangctl/api/pod_fields.json
	@$(BIN)/python -m gangctl.core.lifecycle.page > docs/lifecycle.md

scenarios: $(VENV)/.ready ## Write the outputs of the scenario and golden files anew (then read the diff)
	@$(BIN)/pytest -q tests/core/test_scenarios.py tests/cluster/kube/pod/test_builder.py --regenerate

clean: ## Remove what the commands made in this folder
	@rm -rf $(VENV) .gangctl .hypothesis .mypy_cache .ruff_cache .pytest_cache .cache build
