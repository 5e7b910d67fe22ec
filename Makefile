# `make run` serves a demo agent, `make test` runs every check. `make help` lists the other targets.
# Everything is installed under .tools/ and target/; package managers use their own caches, and cargo-deny is kept in one too.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# What `make run` serves, and where.
WORKSPACE ?= $(CURDIR)
HOST ?= 127.0.0.1
PORT ?= 8000
# The data directory of `run`. Empty: the default of `longshore serve`, which is outside the workspace. An earlier version made one in
# this directory, which is used as long as it is there.
OLD_DATA_DIR := .longshore/demo-$(shell cd '$(WORKSPACE)' 2>/dev/null && pwd -P | cksum | cut -d ' ' -f 1)
DATA_DIR ?= $(wildcard $(OLD_DATA_DIR))
ARGS ?=

TOOLS := $(CURDIR)/.tools
TARGET := $(or $(CARGO_TARGET_DIR),target)
DIST := $(TARGET)/dist
VENV_PYTHON := $(TOOLS)/venv/bin/python
VENV03_PYTHON := $(TOOLS)/venv03/bin/python
VENV_OPENAPI_PYTHON := $(TOOLS)/venv-openapi/bin/python
# An installed cargo-deny is used. Otherwise it is built once per machine (three minutes) and kept in the user's cache.
CARGO_DENY_VERSION := 0.20.2
CARGO_DENY_ROOT := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/longshore/cargo-deny-$(CARGO_DENY_VERSION)
CARGO_DENY := $(or $(shell command -v cargo-deny 2>/dev/null),$(CARGO_DENY_ROOT)/bin/cargo-deny)
HAS_NEXTEST := $(shell cargo nextest --version >/dev/null 2>&1 && echo yes)
HAS_SEEDS := $(wildcard ../shared/seeds)

# The test binary `e2e` drives the real OpenCode. Modules named `seeds` play examples of documents that are not part of the
# repository. Tests whose name begins with `long_` or `campaign_` are too slow
# for `make test`.
SEEDS_TESTS := test(/(^|::)seeds::/)
SELECTED := $(if $(HAS_SEEDS),all(),not $(SEEDS_TESTS))
SKIPPED := --skip ::long_ --skip ::campaign_ $(if $(HAS_SEEDS),,--skip seeds::)
# The names of the other test binaries, for a machine without nextest.
TEST_FILES = $(wildcard crates/*/tests/*.rs longshore/tests/*.rs)
TEST_DIRECTORIES = $(patsubst %/main.rs,%,$(wildcard crates/*/tests/*/main.rs longshore/tests/*/main.rs))
OTHER_TESTS = $(filter-out e2e,$(sort $(basename $(notdir $(TEST_FILES))) $(notdir $(TEST_DIRECTORIES))))
HAS_OPENCODE = $(wildcard $(TOOLS)/bin/opencode)
HAS_ACP_AGENTS = $(and $(wildcard $(TOOLS)/bin/qwen),$(wildcard $(TOOLS)/bin/claude-agent-acp))
HAS_VIBE = $(wildcard $(TOOLS)/bin/vibe-acp)
# Tests that drive agents which are not installed here. `make tools` has said so.
WITHOUT_ACP_AGENTS = $(if $(HAS_ACP_AGENTS),, and not test(/^acp_[a-z]+::(long_)?(qwen|claude)/))$(if \
	$(HAS_VIBE),, and not test(/^acp_[a-z]+::long_(mistral_)?vibe/))

# OpenCode finds `rg`, and the tests find OpenCode, on the PATH.
export PATH := $(TOOLS)/bin:$(PATH)

say = @printf '\n==> %s\n' '$(1)'
# A line for the summary of `make test`: see tools/test.sh.
note = @if [ -n "$$TEST_NOTES" ]; then echo '$(1)' >> "$$TEST_NOTES"; fi

.PHONY: help
help: ## Show this list.
	@echo "make run    WORKSPACE=directory HOST=$(HOST) PORT=$(PORT) ARGS='more flags of longshore serve'"
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: ## Build, install the pinned OpenCode, and serve a demo agent for WORKSPACE (this directory).
	$(call say,Building longshore and installing OpenCode (about three minutes the first time))
	@tools/install-opencode.sh & installing=$$!; \
		cargo build --profile quick --locked --package longshore; built=$$?; \
		wait $$installing && exit $$built
	$(call say,Serving an A2A agent for $(WORKSPACE) with the demo model; Ctrl-C ends it)
	@[ '$(DATA_DIR)' != '$(OLD_DATA_DIR)' ] || echo 'The data is in $(DATA_DIR), where an earlier version put it.' \
		'To move it, run "$(TARGET)/quick/longshore stop --data-dir $(DATA_DIR)" and move the directory out of the workspace.' \
		'Then "make run DATA_DIR=new-place" uses it. Delete the file "token" in it to get a new token.'
	@exec '$(TARGET)/quick/longshore' serve --demo --opencode '$(TOOLS)/bin/opencode' \
		--workspace '$(WORKSPACE)' $(if $(DATA_DIR),--data-dir '$(DATA_DIR)') \
		$(if $(filter $(OLD_DATA_DIR),$(DATA_DIR)),--data-dir-in-workspace) --host '$(HOST)' --port '$(PORT)' $(ARGS)

.PHONY: release
release: ## Build the binary that is shipped and measured, stripped, with its debug symbols beside it.
	$(call say,Building longshore (whole-program optimisation; six minutes or more the first time))
	CARGO_PROFILE_RELEASE_STRIP=none cargo build --release --locked --package longshore
	mkdir -p '$(DIST)'
	objcopy --only-keep-debug --compress-debug-sections '$(TARGET)/release/longshore' '$(DIST)/longshore.debug'
	objcopy --strip-all --add-gnu-debuglink='$(DIST)/longshore.debug' '$(TARGET)/release/longshore' '$(DIST)/longshore'
	@ls -l '$(DIST)'

.PHONY: test
test: ## Install what the tests need and run the quick suite, with a summary of how long each part took.
	@tools/test.sh tools-and-lint deny build-tests rust-test clients

.PHONY: test-long
test-long: ## Run what is too slow for `make test`: 5,000 simulation seeds, storms, leak and full-disk runs. Before a release.
	@tools/test.sh tools vibe build-tests long-simulation long-rust-test long-acp-matrix long-openapi long-commands

# The installation mostly waits for the network, so the lints run meanwhile.
.PHONY: tools-and-lint
tools-and-lint:
	@tools/together.sh 'Tools: $(MAKE) --no-print-directory tools' 'Lints: $(MAKE) --no-print-directory lint'

.PHONY: tools
tools: $(CARGO_DENY) python node-clients
	@tools/install-opencode.sh || { [ -n "$$TEST_NOTES" ] && \
		echo 'MISSING: OpenCode could not be installed, so no test with the real OpenCode ran.' >> "$$TEST_NOTES"; }
	@tools/install-acp-agents.sh || { [ -n "$$TEST_NOTES" ] && \
		echo 'MISSING: Qwen Code and Claude Agent could not be installed, so their tests did not run.' >> "$$TEST_NOTES"; }

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

# Every later part uses exactly this build: another selection of packages or targets would compile the workspace again.
.PHONY: build-tests
build-tests:
	$(call say,Building the tests)
	cargo test --workspace --locked --no-run --quiet

.PHONY: rust-test
rust-test: build-tests ## Run the quick Rust tests: unit, property, replay, and end-to-end with the real OpenCode.
	$(call say,Rust tests)
	$(if $(HAS_SEEDS),,$(call note,Not run: the examples of the seed documents because ../shared/seeds is missing.))
	$(if $(HAS_OPENCODE),,@echo 'No test with the real OpenCode runs: it is not installed (make opencode).')
	@unshare --map-root-user --mount true 2>/dev/null || { [ -z "$$TEST_NOTES" ] || \
		echo 'Full-disk tests used a file size limit because this machine allows no mount namespaces.' >> "$$TEST_NOTES"; }
ifeq ($(HAS_NEXTEST),yes)
	cargo nextest run --workspace --locked -E '$(SELECTED)$(if $(HAS_OPENCODE),, and not binary(e2e))$(WITHOUT_ACP_AGENTS)'
else
	cargo test --workspace --locked --lib --bins $(if $(HAS_OPENCODE),--tests,$(addprefix --test ,$(OTHER_TESTS))) -- \
		--test-threads=4 $(SKIPPED) $(if $(HAS_ACP_AGENTS),,--skip acp_agents::qwen --skip acp_agents::claude)
endif

.PHONY: long-rust-test
long-rust-test: build-tests
	$(call say,Long Rust tests)
ifeq ($(HAS_NEXTEST),yes)
	cargo nextest run --workspace --locked --profile long -E 'not test(/^acp_matrix::/)$(WITHOUT_ACP_AGENTS)'
else
	cargo test --workspace --locked --lib --bins --tests -- --test-threads=2 ::long_ --skip acp_matrix:: \
		$(if $(HAS_ACP_AGENTS),,--skip qwen --skip claude) $(if $(HAS_VIBE),,--skip vibe)
endif

# Each agent with every client: a line for each in the summary.
.PHONY: long-acp-matrix
long-acp-matrix: export LONGSHORE_MATRIX_ROWS := $(abspath $(TARGET))/acp-matrix.txt
long-acp-matrix: python node-clients build-tests
	$(call say,Every ACP agent with every official client)
	@: > '$(LONGSHORE_MATRIX_ROWS)'
ifeq ($(HAS_NEXTEST),yes)
	cargo nextest run --workspace --locked --profile long -E 'test(/^acp_matrix::/)$(WITHOUT_ACP_AGENTS)'
else
	cargo test --package longshore --locked --test e2e -- --test-threads=1 acp_matrix:: \
		$(if $(HAS_ACP_AGENTS),,--skip qwen --skip claude) $(if $(HAS_VIBE),,--skip vibe)
endif
	@[ -z "$$TEST_NOTES" ] || sort '$(LONGSHORE_MATRIX_ROWS)' >> "$$TEST_NOTES"

.PHONY: long-simulation
long-simulation: export LONGSHORE_SEEDS := 5000
long-simulation: build-tests
	$(call say,Simulation of 5000 seeds)
	cargo test --workspace --locked --test simulation -- --test-threads=2 seeds_of_share

.PHONY: unit
unit: ## Run the quick Rust tests that need no OpenCode.
	$(call say,Rust tests without OpenCode)
ifeq ($(HAS_NEXTEST),yes)
	cargo nextest run --workspace --locked -E '$(SELECTED) and not binary(e2e)'
else
	cargo test --workspace --locked --lib --bins $(addprefix --test ,$(OTHER_TESTS)) -- $(SKIPPED)
endif

.PHONY: seed
seed: export LONGSHORE_SEED := $(SEED)
seed: export LONGSHORE_SEEDS := $(SEEDS)
seed: ## Replay SEED=number of the simulation; SEEDS=count plays that many from there on.
	$(call say,Simulation of seed $(or $(SEED),0))
	cargo test --quiet --package longshore-engine --locked --test simulation -- --nocapture the_seed_of_the_environment

.PHONY: e2e
e2e: opencode ## Run the quick end-to-end tests with the real OpenCode.
	$(call say,End-to-end tests with the real OpenCode)
ifeq ($(HAS_NEXTEST),yes)
	cargo nextest run --workspace --locked -E 'binary(e2e) and $(SELECTED)'
else
	cargo test --workspace --locked --test e2e -- --test-threads=2 $(SKIPPED)
endif

.PHONY: chaos
chaos: export LONGSHORE_CAMPAIGN_ROWS := $(abspath $(TARGET))/chaos/rows.md
chaos: opencode build-tests ## Kill, cut, flood and damage everything for 45 minutes, check that nothing is lost, write docs/reliability.md.
	$(call say,Campaign tests: hostile clients and kills of OpenCode and damaged stores)
	@mkdir -p '$(TARGET)/chaos' && : > '$(LONGSHORE_CAMPAIGN_ROWS)'
ifeq ($(HAS_NEXTEST),yes)
	cargo nextest run --workspace --locked --profile campaign
else
	cargo test --workspace --locked --tests -- --test-threads=1 ::campaign_
endif
	@# The build of the tests: with debug assertions and fail points.
	$(call say,Chaos: storms over the gateway with a fake and with the real OpenCode)
	'$(TARGET)/debug/examples/chaos' --gateway '$(TARGET)/debug/longshore' --evidence '$(TARGET)/chaos' \
		--report docs/reliability.md --rows '$(LONGSHORE_CAMPAIGN_ROWS)' --date "$$(date -u +%F)" --commit "$$(git rev-parse --short HEAD)" $(ARGS)

# Smaller runs: ARGS='--quick', ARGS='--only unary,streams'. Only a full run writes the report. Results are kept after each
# phase: ARGS='--resume' continues with the rest, ARGS='--resume --only soak' measures that phase again.
.PHONY: bench
bench: peer ## Measure Longshore beside its Python peer (an hour on a quiet machine), and write docs/performance.md.
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
	CARGO_PROFILE_RELEASE_STRIP=none cargo build --release --locked --package longshore --package longshore-bench
	$(call say,Instructions of the hot path)
	'$(TARGET)/release/longshore-bench' count --callgrind $(ARGS)

.PHONY: openapi
openapi: export LONGSHORE_BIN := $(abspath $(TARGET))/debug/longshore
openapi: export HYPOTHESIS_STORAGE_DIRECTORY := $(TOOLS)/hypothesis
openapi: python build-tests ## Validate the OpenAPI document, and compare responses to generated requests with it.
	$(call say,The OpenAPI document and generated requests)
	$(VENV_OPENAPI_PYTHON) -m pytest interop/openapi -m '$(if $(LONG_OPENAPI),long,not long)'

.PHONY: long-openapi
long-openapi:
	@$(MAKE) --no-print-directory openapi LONG_OPENAPI=yes

.PHONY: long-commands
long-commands: export LONGSHORE_BIN := $(abspath $(TARGET))/debug/longshore
long-commands: python node-clients build-tests
	$(call say,Every command with an agent of each official SDK over every binding and version)
	$(VENV_PYTHON) -m pytest interop/python -m long
	$(VENV03_PYTHON) -m pytest interop/python03 -m long

.PHONY: clients
clients: python node-clients build-tests
	@tools/together.sh 'OpenAPI: $(MAKE) --no-print-directory openapi' \
		'Official A2A clients: $(MAKE) --no-print-directory interop'

# Each client has its own gateway and OpenCode, and mostly waits: they run at the same time.
.PHONY: interop
interop: export LONGSHORE_BIN := $(abspath $(TARGET))/debug/longshore
interop: opencode python node-clients build-tests ## Run the official A2A clients for Python and JavaScript, of both versions, and those of MCP.
	@tools/together.sh \
		'JavaScript clients of A2A 1.0 and 0.3, and of MCP: node --test --test-reporter=spec interop/js/operations.test.mjs interop/js/websocket.test.mjs interop/js/push-delivery.test.mjs interop/js/mcp.test.mjs' \
		'Python client of MCP: $(TOOLS)/venv-mcp/bin/python -m pytest interop/mcp' \
		'Python client of A2A 0.3: $(VENV03_PYTHON) -m pytest interop/python03 -m "not long"' \
		'Python client of A2A 1.0: $(VENV_PYTHON) -m pytest interop/python -m "not long"'

.PHONY: conformance
conformance: build-tests ## Run the public A2A conformance kits in KIT=folder (docs/conformance.md). Not part of `make test`.
	@test -n '$(KIT)' || { echo 'make conformance KIT=folder: name the folder with a checkout of a2aproject/a2a-tck' >&2; exit 2; }
	@tools/install-python.sh conformance
	$(call say,The public conformance kits)
	$(TOOLS)/venv-conformance/bin/python tools/conformance/run.py '$(KIT)'

.PHONY: docs
docs: ## Generate docs/configuration.md and docs/methods.md from the tables of settings and methods.
	cargo run --quiet --locked --package longshore -- settings > docs/configuration.md.new
	mv docs/configuration.md.new docs/configuration.md
	cargo run --quiet --locked --package longshore -- methods > docs/methods.md.new
	mv docs/methods.md.new docs/methods.md

.PHONY: opencode
opencode: ## Install the pinned OpenCode and its rg under .tools/.
	@tools/install-opencode.sh

.PHONY: acp-agents
acp-agents: ## Install the pinned Qwen Code and Claude Agent under .tools/.
	@tools/install-acp-agents.sh

.PHONY: vibe
vibe: ## Install the pinned Mistral Vibe under .tools/ (400 MB; needs Python 3.12), for `make test-long`.
	@tools/install-python.sh vibe || { [ -n "$$TEST_NOTES" ] && \
		echo 'MISSING: Mistral Vibe could not be installed (it needs Python 3.12 or newer), so its tests did not run.' \
		>> "$$TEST_NOTES"; }

.PHONY: python
python: ## Install the official A2A clients for Python, schemathesis and pytest under .tools/.
	@tools/install-python.sh

.PHONY: peer
peer: ## Install opencode-a2a, the Python peer that `make bench` measures, under .tools/.
	@tools/install-python.sh peer

.PHONY: node-clients
node-clients: ## Install the official A2A clients for JavaScript under .tools/.
	@tools/install-node-clients.sh

$(CARGO_DENY_ROOT)/bin/cargo-deny:
	$(call say,Installing cargo-deny $(CARGO_DENY_VERSION) in the cache of this user (about three minutes))
	cargo install --quiet --locked cargo-deny --version $(CARGO_DENY_VERSION) \
		--root '$(CARGO_DENY_ROOT)' --target-dir '$(CARGO_DENY_ROOT)/build'
	rm -rf '$(CARGO_DENY_ROOT)/build'

.PHONY: clean-tools
clean-tools: ## Remove everything that was installed under .tools/.
	rm -rf '$(TOOLS)'
