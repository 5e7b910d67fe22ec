# `make run` serves a demo agent, `make test` runs every check. `make help` lists the rest.
# Nothing is installed outside .tools/, target/ and the caches of cargo, npm and pip.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# What `make run` serves, and where.
WORKSPACE ?= $(CURDIR)
HOST ?= 127.0.0.1
PORT ?= 8000
# Each workspace has a data directory of its own, named by a checksum of its path. Only `run` looks at it.
DATA_DIR ?= .longshore/demo-$(shell cd '$(WORKSPACE)' 2>/dev/null && pwd -P | cksum | cut -d ' ' -f 1)
ARGS ?=

TOOLS := $(CURDIR)/.tools
TARGET := $(or $(CARGO_TARGET_DIR),target)
VENV_PYTHON := $(TOOLS)/venv/bin/python
VENV03_PYTHON := $(TOOLS)/venv03/bin/python
VENV_OPENAPI_PYTHON := $(TOOLS)/venv-openapi/bin/python
CARGO_DENY_VERSION := 0.20.2
# One that is installed on the machine is used; otherwise it is built once, under .tools/.
CARGO_DENY := $(or $(shell command -v cargo-deny 2>/dev/null),$(TOOLS)/cargo/bin/cargo-deny)
# The test binaries that drive the real OpenCode, as in .config/nextest.toml: their names tell.
REAL := binary(/^(e2e|interop)/)
# The other test binaries, for a machine without nextest.
TEST_FILES = $(wildcard crates/*/tests/*.rs longshore/tests/*.rs)
TEST_DIRECTORIES = $(patsubst %/main.rs,%,$(wildcard crates/*/tests/*/main.rs longshore/tests/*/main.rs))
UNREAL = $(filter-out e2e% interop%,$(sort $(basename $(notdir $(TEST_FILES))) $(notdir $(TEST_DIRECTORIES))))
# The documents whose examples are played are not part of the checkout: where they are not beside it, that is said.
HAS_SEEDS := $(wildcard ../shared/seeds)
NO_SEEDS := $(if $(HAS_SEEDS),,--skip seeds::)
ALL := $(if $(HAS_SEEDS),all(),not test(/^seeds::/))
HAS_NEXTEST := $(shell cargo nextest --version >/dev/null 2>&1 && echo yes)

# OpenCode finds its `rg`, and the tests find OpenCode, on the PATH.
export PATH := $(TOOLS)/bin:$(PATH)

say = @printf '\n==> %s\n' '$(1)'

.PHONY: help
help: ## Show this list.
	@echo "make run    WORKSPACE=directory HOST=$(HOST) PORT=$(PORT) ARGS='more flags of longshore serve'"
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: opencode ## Build, install the pinned OpenCode, and serve a demo agent for WORKSPACE (this directory).
	$(call say,Building longshore (optimised; six minutes or more the first time))
	cargo build --release --locked --package longshore
	$(call say,Serving an A2A agent for $(WORKSPACE) with the demo model; Ctrl-C ends it)
	@exec '$(TARGET)/release/longshore' serve --demo --opencode '$(TOOLS)/bin/opencode' \
		--workspace '$(WORKSPACE)' --data-dir '$(DATA_DIR)' --host '$(HOST)' --port '$(PORT)' $(ARGS)

# The runner whose summary CI reads comes last.
.PHONY: test
test: ## Install what the tests need and run all of them: lint, deny, rust-test, openapi, interop.
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory deny
	@$(MAKE) --no-print-directory doc-test
	@$(MAKE) --no-print-directory rust-test
	@$(MAKE) --no-print-directory openapi
	@$(MAKE) --no-print-directory interop

.PHONY: lint
lint: ## Check the format and run clippy; every warning is an error.
	$(call say,Format)
	cargo fmt --all --check
	$(call say,Lints)
	cargo clippy --workspace --all-targets --locked -- -D warnings

.PHONY: deny
deny: $(CARGO_DENY) ## Check licences, banned crates and sources of the dependencies.
	$(call say,Dependencies: bans and licences and sources)
	$(CARGO_DENY) --locked check bans licenses sources

.PHONY: audit
audit: $(CARGO_DENY) ## Check the dependencies for known vulnerabilities (fetches the advisory database).
	$(call say,Dependencies: advisories)
	$(CARGO_DENY) --locked check advisories

.PHONY: doc-test
doc-test:
	$(call say,Examples in the documentation)
	cargo test --workspace --doc --locked --quiet

.PHONY: rust-test
rust-test: opencode ## Run every Rust test: unit, property, replay, end-to-end with the real OpenCode.
	$(call say,Rust tests$(if $(HAS_SEEDS),, without the examples of the seeds which are not in ../shared/seeds))
ifeq ($(HAS_NEXTEST),yes)
	cargo nextest run --workspace --locked -E '$(ALL)'
else
	cargo test --workspace --locked --lib --bins --tests -- --test-threads=2 $(NO_SEEDS)
endif

.PHONY: unit
unit: ## Run the Rust tests that need no OpenCode.
	$(call say,Rust tests without OpenCode)
ifeq ($(HAS_NEXTEST),yes)
	cargo nextest run --workspace --locked -E 'not $(REAL)'
else
	cargo test --workspace --locked --lib --bins $(addprefix --test ,$(UNREAL))
endif

.PHONY: seed
seed: export LONGSHORE_SEED := $(SEED)
seed: export LONGSHORE_SEEDS := $(SEEDS)
seed: ## Play SEED=number of the simulation again, and SEEDS=count from there on if more are wanted.
	$(call say,Simulation of seed $(or $(SEED),0))
	cargo test --quiet --package longshore-engine --locked --test simulation -- --nocapture the_seed_of_the_environment

.PHONY: e2e
e2e: opencode ## Run the end-to-end tests with the real OpenCode.
	$(call say,End-to-end tests with the real OpenCode)
ifeq ($(HAS_NEXTEST),yes)
	cargo nextest run --workspace --locked -E '$(REAL) and $(ALL)'
else
	cargo test --workspace --locked --test 'e2e*' --test 'interop*' -- --test-threads=2 $(NO_SEEDS)
endif

.PHONY: chaos
chaos: opencode ## Kill and cut everything for up to half an hour, check that nothing is lost, and write docs/reliability.md.
	@# As the tests build it: with debug assertions, and with the places where it can be made to die.
	cargo test --workspace --locked --no-run --quiet
	$(call say,Chaos: storms over the gateway with a fake and with the real OpenCode)
	'$(TARGET)/debug/examples/chaos' --gateway '$(TARGET)/debug/longshore' --evidence '$(TARGET)/chaos' \
		--report docs/reliability.md --date "$$(date -u +%F)" --commit "$$(git rev-parse --short HEAD)" $(ARGS)

# Smaller runs: ARGS='--quick', ARGS='--only unary,streams'. Only a full run writes the report. What it has found is kept
# after each phase: ARGS='--resume' goes on with the rest, ARGS='--resume --only soak' measures that again.
.PHONY: bench
bench: peer ## Measure Longshore beside its peer (50 minutes on a quiet machine), and write docs/performance.md.
	$(call say,Building longshore and its bench (optimised; six minutes or more the first time))
	cargo build --release --locked --package longshore --package longshore-bench
	$(call say,Measuring Longshore and its peer)
	'$(TARGET)/release/longshore-bench' run --longshore '$(TARGET)/release/longshore' \
		--peer '$(TOOLS)/venv-peer/bin/opencode-a2a' --out '$(TARGET)/bench' --docs docs --reasons bench/reasons.toml \
		--date "$$(date -u +%F)" --commit "$$(git rev-parse --short HEAD)" $(ARGS)

.PHONY: bench-report
bench-report: ## Write docs/performance.md again from the last full run, with the reasons of bench/reasons.toml.
	'$(TARGET)/release/longshore-bench' report --from '$(TARGET)/bench/results.json' --docs docs --reasons bench/reasons.toml

.PHONY: bench-count
bench-count: ## Count the instructions of the pieces of the hot path (valgrind), for the next report.
	cargo build --release --locked --package longshore --package longshore-bench
	$(call say,Instructions of the hot path)
	'$(TARGET)/release/longshore-bench' count --callgrind $(ARGS)

.PHONY: openapi
openapi: export LONGSHORE_BIN := $(abspath $(TARGET))/debug/longshore
openapi: export HYPOTHESIS_STORAGE_DIRECTORY := $(TOOLS)/hypothesis
openapi: python ## Validate the OpenAPI document, and look for answers outside of it with generated requests.
	cargo test --workspace --locked --no-run --quiet
	$(call say,The OpenAPI document and requests that are generated from it)
	$(VENV_OPENAPI_PYTHON) -m pytest interop/openapi

.PHONY: interop
interop: export LONGSHORE_BIN := $(abspath $(TARGET))/debug/longshore
interop: opencode python node-clients ## Run the tests with the official A2A clients of both lines: Python, JavaScript.
	@# As the tests above build it: `cargo build` would choose other features and compile everything again.
	cargo test --workspace --locked --no-run --quiet
	$(call say,Interop tests with the JavaScript clients of A2A 1.0 and 0.3)
	node --test --test-reporter=spec interop/js/operations.test.mjs
	$(call say,Interop tests with the Python client of A2A 0.3)
	$(VENV03_PYTHON) -m pytest interop/python03
	$(call say,Interop tests with the Python client of A2A 1.0)
	$(VENV_PYTHON) -m pytest interop/python

.PHONY: conformance
conformance: ## Run the public A2A conformance kits in KIT=folder (docs/conformance.md). Not part of `make test`.
	@test -n '$(KIT)' || { echo 'make conformance KIT=folder: say where a2aproject/a2a-tck is checked out' >&2; exit 2; }
	@tools/install-python.sh conformance
	cargo test --workspace --locked --no-run --quiet
	$(call say,The public conformance kits)
	$(TOOLS)/venv-conformance/bin/python tools/conformance/run.py '$(KIT)'

.PHONY: docs
docs: ## Write docs/configuration.md and docs/methods.md anew from the tables of settings and methods.
	cargo run --quiet --locked --package longshore -- settings > docs/configuration.md.new
	mv docs/configuration.md.new docs/configuration.md
	cargo run --quiet --locked --package longshore -- methods > docs/methods.md.new
	mv docs/methods.md.new docs/methods.md

.PHONY: opencode
opencode: ## Install the pinned OpenCode and its rg under .tools/.
	@tools/install-opencode.sh

.PHONY: python
python: ## Install the official A2A clients for Python, schemathesis and pytest under .tools/.
	@tools/install-python.sh

.PHONY: peer
peer: ## Install opencode-a2a, the peer that `make bench` measures, under .tools/.
	@tools/install-python.sh peer

.PHONY: node-clients
node-clients: ## Install the official A2A clients for JavaScript under .tools/.
	@tools/install-node-clients.sh

$(TOOLS)/cargo/bin/cargo-deny:
	$(call say,Installing cargo-deny $(CARGO_DENY_VERSION) under .tools/ once (about three minutes))
	cargo install --quiet --locked cargo-deny --version $(CARGO_DENY_VERSION) \
		--root '$(TOOLS)/cargo' --target-dir '$(TOOLS)/cargo-build'
	rm -rf '$(TOOLS)/cargo-build'

.PHONY: clean-tools
clean-tools: ## Remove everything that was installed under .tools/.
	rm -rf '$(TOOLS)'
