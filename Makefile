# The commands of this repository. Each works alone on a fresh clone with Python 3.11+, git and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
VERSION = $(shell cat VERSION)
PROJECTS := pyproject.toml sidecar/pyproject.toml client/pyproject.toml
UV := $(BIN)/uv pip
INSTALL_OURS = $(UV) install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e client -e sidecar -e .
LOCKED := requirements-setup.txt requirements.txt requirements-dev.txt
# Python keeps what it has compiled, also where a machine forbids it: else each process that a test starts compiles anew.
export PYTHONDONTWRITEBYTECODE :=
export MYPY_CACHE_DIR ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/gangctl/mypy
SOURCES := gangctl sidecar/gangsidecar sidecar/static client/gangclient tests bench examples e2e

E2E_DIR := $(or $(TMPDIR),/tmp)/gangctl-e2e

# What starts no process of ours and waits for no clock. The simulation doesn't either, but takes minutes.
PURE := tests/api tests/core tests/words tests/explain tests/sidecar/machine tests/cluster/kube/pod tests/cluster/kube/watch
# An annex's tests run if the annex has changed since main, always in CI (where that can't be known), and at night.
ANNEXES := $(wildcard tests/annexes/[a-z]*)
# What reads the bytes of tenants, users and processes.
READERS := tests/cluster/kube/test_cost_of_tenants.py tests/api tests/sidecar/test_wire.py tests/sidecar/test_last_words.py \
  tests/sidecar/agent/test_api_document.py tests/annexes/convert/test_shell.py tests/core/test_any_state.py
BASE = $(or $(shell git merge-base HEAD origin/main 2>/dev/null),HEAD)
CHANGED = $(shell git diff --name-only $(BASE); git ls-files --others --exclude-standard)
CHANGED_ANNEXES = $(if $(CI),$(ANNEXES),$(foreach one,$(notdir $(ANNEXES)),$(if $(findstring annexes/$(one)/,$(CHANGED)),tests/annexes/$(one))))
NIGHTLY := nightly-tests nightly-e2e e2e-1.36 e2e-1.34 e2e-queues e2e-jobsets e2e-frameworks e2e-versions mutants simulate fuzz

# Run a command, and say how long it took, however it ended.
define timed
began=$$(date +%s); $(1); code=$$?; took=$$(( $$(date +%s) - began )); echo "make $@: $$(( took / 60 )) min $$(( took % 60 )) s"; exit $$code
endef

.PHONY: help demo check test lint code pure tests prose docs wheels e2e on-a-cluster nightly $(NIGHTLY) flaky e2e-up e2e-down bench pictures generate pod-fields scenarios clean

help: ## Say what each command does
	@grep -hE '^[a-z0-9.-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(VENV)/.uv: requirements-setup.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, this is " + sys.version)'
	@echo "Setting up $(VENV) (once, up to a minute) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-setup.txt
	@touch $@

$(VENV)/.ready: $(VENV)/.uv requirements.txt VERSION $(PROJECTS)
	@$(UV) install --quiet --python $(BIN)/python --require-hashes -r requirements.txt
	@$(INSTALL_OURS)
	@touch $@

# Exactly what the three files name and nothing that was installed by hand, so that mypy reads the same types everywhere.
$(VENV)/.dev: $(VENV)/.uv $(LOCKED) VERSION $(PROJECTS)
	@$(UV) sync --quiet --python $(BIN)/python --require-hashes $(LOCKED)
	@$(INSTALL_OURS)
	@touch $(VENV)/.ready $@

demo: $(VENV)/.ready ## Train with 4 members, kill one worker, make another leave, end with the same loss bit by bit
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python examples/demo.py

check: ## Before each commit: formatting, ruff, mypy, layers, pure tests without the simulation, those of changed annexes
	@$(call timed,$(MAKE) --no-print-directory code pure)

test: ## Check, and all other tests that need no cluster
	@$(call timed,$(MAKE) --no-print-directory -j2 lint tests)

lint: code prose ## Formatting, ruff with all rules, mypy strict, layers, GitHub's files, prose, the documentation site

code: $(VENV)/.dev
	@$(BIN)/ruff format --check $(SOURCES)
	@$(BIN)/ruff check $(SOURCES)
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

pure: $(VENV)/.dev
	@$(BIN)/pytest -n 2 --dist worksteal -m "not nightly" $(PURE) $(CHANGED_ANNEXES)

# Three workers a core: most tests wait for processes.
tests: $(VENV)/.dev
	@$(BIN)/pytest -n 6 --dist worksteal -m "not nightly" tests $(addprefix --ignore ,$(filter-out $(CHANGED_ANNEXES),$(ANNEXES)))

prose: $(VENV)/.dev docs
	@$(BIN)/zizmor --offline --no-progress --quiet --persona pedantic .github
	@$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*
	@$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/[!c]*
	@$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
	@$(BIN)/check-jsonschema --quiet --builtin-schema vendor.dependabot .github/dependabot.yml
	@$(BIN)/proselint check --output-format compact *.md docs e2e/README.md .github

docs: $(VENV)/.dev ## Build the documentation site into build/site; a broken link fails
	@$(BIN)/zensical build --strict --clean
	@$(BIN)/pytest -q tests/test_docs.py tests/test_words.py

wheels: $(VENV)/.ready ## Build the wheels of all distributions into build/wheels
	@rm -rf build/wheels
	@$(BIN)/pip --quiet --disable-pip-version-check wheel --no-deps --no-build-isolation --wheel-dir build/wheels $(patsubst %,./%,$(dir $(PROJECTS)))

e2e: ## The acceptance tests on real Kubernetes (root; or any cluster: KUBECONFIG=...): make e2e E2E="-k name"
	@$(call timed,$(MAKE) --no-print-directory on-a-cluster)

# On two clusters of our own side by side; on one that is there already, one test after the other.
on-a-cluster: $(VENV)/.dev
	@$(BIN)/pytest e2e --ignore e2e/queues --ignore e2e/jobsets --ignore e2e/frameworks --ignore e2e/versions -n auto --dist loadfile $(or $(E2E),-m "not nightly")

nightly: ## All else, for hours: large cases, the rest of e2e, Kubernetes 1.36 and 1.34, queues, frameworks, versions, mutants, simulation; a table of times
	@table=; code=0; for job in $(NIGHTLY); do \
	  began=$$(date +%s); ended=passed; \
	  $(MAKE) --no-print-directory $$job SECONDS=$(or $(SECONDS),1800) || { ended=FAILED; code=1; }; \
	  table="$$table$$(printf '%-16s %-6s %6d s' $$job $$ended $$(( $$(date +%s) - began )))\n"; \
	done; printf "make nightly:\n$$table"; exit $$code

# All examples of the tests of pure code, and what is marked in the others.
nightly-tests: $(VENV)/.dev
	@GANGCTL_NIGHTLY=1 $(BIN)/pytest -n 2 --dist worksteal --timeout 3600 $(PURE) tests/simulation $(ANNEXES)
	@$(BIN)/pytest -n 3 --dist worksteal --timeout 3600 -m nightly tests $(addprefix --ignore ,$(PURE) tests/simulation tests/annexes)

nightly-e2e: $(VENV)/.dev
	@$(MAKE) --no-print-directory on-a-cluster E2E="-m nightly"

e2e-1.36: export GANGCTL_E2E_KUBERNETES := 1.36.3
e2e-1.36: $(VENV)/.dev ## The acceptance tests, and PodGroups, on the release of Kubernetes before ours
	@$(MAKE) --no-print-directory on-a-cluster
	@$(BIN)/pytest e2e/test_gang_scheduling.py

e2e-1.34: export GANGCTL_E2E_KUBERNETES := 1.34.4
e2e-1.34: $(VENV)/.dev ## The acceptance tests on the oldest release of Kubernetes that we test
	@$(MAKE) --no-print-directory on-a-cluster

e2e-queues: $(VENV)/.dev ## Gangs with real queues and schedulers, built first (see e2e/README.md): make e2e-queues E2E="-k kueue"
	@$(BIN)/pytest e2e/queues --timeout 600 $(E2E)

e2e-jobsets: $(VENV)/.dev ## JobSets with the real JobSet, Kueue and Kubeflow Trainer, built first, and JobSet's own tests: make e2e-jobsets E2E="-k trainer"
	@$(BIN)/pytest e2e/jobsets --timeout 600 $(E2E)
	@$(if $(E2E),,$(BIN)/python -m e2e.jobsets.suite --under gangctl --write)

e2e-frameworks: $(VENV)/.dev ## The examples of frameworks with their real packages, above Debian's PyTorch
	@$(BIN)/pytest e2e/frameworks --timeout 600 $(E2E)

e2e-versions: $(VENV)/.dev ## The same examples with the oldest and the newest packages, on this machine (15 GB, no root)
	@$(BIN)/pytest e2e/versions --timeout 900 $(E2E)

e2e-up: $(VENV)/.ready ## Start a cluster that stays, for make e2e and for manual tests (see e2e/README.md)
	@$(BIN)/python -m e2e.cluster --dir $(E2E_DIR) up

e2e-down: $(VENV)/.ready ## Take that cluster down
	@$(BIN)/python -m e2e.cluster --dir $(E2E_DIR) down

bench: $(VENV)/.dev ## What docs/benchmarks.md quotes: restarts here, decisions, and (as root) restarts on real Kubernetes
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python bench/restart.py
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m bench.tracing
	@$(BIN)/python bench/decide.py
	@$(BIN)/python bench/metrics.py
	@if [ $$(id -u) = 0 ]; then $(BIN)/python -m bench.cluster && $(BIN)/python -m bench.first_step && $(BIN)/python -m bench.first_start && $(BIN)/python -m bench.nodes; else echo "bench/cluster.py, first_step.py, first_start.py and nodes.py need root"; fi

pictures: $(VENV)/.dev ## Record docs/pictures anew: a restart of the demo in a terminal and in a browser; as root, the dashboard
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m bench.pictures
	@if [ $$(id -u) = 0 ]; then $(BIN)/python -m bench.dashboard_picture; else echo "bench/dashboard_picture.py needs root"; fi

simulate: $(VENV)/.dev ## A long simulation: make simulate SECONDS=600 SEED=7
	@$(BIN)/python tests/simulation/long_run.py --seconds $(or $(SECONDS),60) --seed $(or $(SEED),1)

fuzz: $(VENV)/.dev ## Read random bytes of tenants, users and processes, each within its time: make fuzz TIMES=20
	@GANGCTL_FUZZ=$(or $(TIMES),5) $(BIN)/pytest -n 2 --dist worksteal --timeout 3600 $(READERS)

flaky: $(VENV)/.dev ## Run tests N times, then N times beside four busy loops a core: make flaky N=20 T="tests/cli -k run"
	@$(BIN)/python -m tests.flaky --times $(or $(N),20) -- $(T)

mutants: $(VENV)/.dev ## Show that the tests have teeth: each deliberate mistake must be caught
	@GANGCTL_NIGHTLY=1 $(BIN)/python tests/simulation/run_mutants.py --only "$(ONLY)" --jobs $(or $(JOBS),2) $(if $(RECORD),--record) $(if $(ANEW),--anew)

generate: $(VENV)/.ready ## Write what is made from something else: the CRD, the reference pages, the version in other files
	@sed -i -E 's/^(version|appVersion): .*/\1: $(VERSION)/' charts/gangctl/Chart.yaml
	@sed -i -E 's/"(gang[a-z]+)==[^"]+"/"\1==$(VERSION)"/' $(PROJECTS)
	@$(BIN)/python -m gangctl.api.crd > crds/gangctl.io_gangjobs.yaml
	@cp crds/gangctl.io_gangjobs.yaml charts/gangctl/files/crd.yaml
	@$(BIN)/python -m tests.pages.gangjob > docs/reference/gangjob.md
	@$(BIN)/python -m tests.pages.events > docs/reference/events.md
	@$(BIN)/python -m tests.pages.node_signals > docs/reference/node-signals.md
	@$(BIN)/python -m tests.pages.faults > docs/reference/faults.md
	@$(BIN)/python -m tests.pages.lifecycle > docs/lifecycle.md
	@$(BIN)/python -m tests.house

pod-fields: $(VENV)/.dev ## Write the fields of pod templates anew, from the sources of Kubernetes (Go)
	@$(BIN)/python -m e2e.cluster.pod_fields > $(VENV)/pod_fields.json && mv $(VENV)/pod_fields.json gangctl/api/pod_fields.json

scenarios: $(VENV)/.dev ## Write the outputs of the scenario and golden files anew (then read the diff)
	@$(BIN)/pytest -q tests/core/test_scenarios.py tests/cluster/kube/pod/test_builder.py --regenerate

clean: ## Remove what the commands made in this folder
	@rm -rf $(VENV) .gangctl .hypothesis .mypy_cache .ruff_cache .pytest_cache .cache build
