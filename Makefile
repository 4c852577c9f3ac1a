# Everything a person or a machine does with this project. `make help` lists it.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Where cargo puts programs for this machine (see .cargo/config.toml).
BUILT = target/$(shell rustc -vV | sed -n 's/^host: //p')
TESTBED = $(BUILT)/debug/testbed
# A second cluster, for what runs beside the first.
BESIDE = TESTBED_DIR=target/testbed-beside
# CLUSTER=current runs what needs only a kubeconfig on the cluster that kubectl talks to.
export CLUSTER ?= testbed

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: $(if $(filter current,$(CLUSTER)),,cluster) ## Show it at work, from nothing: a cluster, Keelson, a database of three
	@cargo build --locked --package keelson
	@scripts/demo $(TESTBED) $(BUILT)/debug/keelson

.PHONY: install
install: $(if $(filter current,$(CLUSTER)),,cluster program) ## Install Keelson on the testbed, or with CLUSTER=current IMAGE=name:tag on yours
	@scripts/install $(TESTBED) $(BUILT)/release/keelson

.PHONY: program
program: tools ## Build the program that goes into the operator's image (see Containerfile)
	cargo build --locked --release --package keelson

.PHONY: test
test: lint ## Check everything, on a real cluster that is started and removed for it
ifeq ($(CLUSTER),current)
	@echo "CLUSTER=current: only the tests that need nothing but a kubeconfig"
	cargo test --locked --package testbed --test cluster -- kubernetes::
else
	$(MAKE) chaos-program
	cargo test --locked --workspace --no-run
	@echo "Five minutes of chaos, beside what needs no nodes"
	$(BESIDE) $(MAKE) chaos MINUTES=5 SEED=1 >target/chaos.txt 2>&1 & failed=; \
	    $(MAKE) test-alone || failed=1; \
	    wait $$! || failed=1; cat target/chaos.txt; [ -z "$$failed" ]
	@echo "What needs a whole cluster, beside the rest"
	cargo test --locked --workspace --lib --bins $(ALONE:%=--test %) >target/alone.txt 2>&1 & failed=; \
	    trap '$(TESTBED) down' EXIT; cargo test --locked --workspace --test databases --test install || failed=1; \
	    wait $$! || failed=1; cat target/alone.txt; [ -z "$$failed" ]
	trap '$(TESTBED) down' EXIT; cargo test --locked --workspace --test cluster
	cargo test --locked --workspace --doc
endif

# The tests of all crates but those on a cluster with nodes, and those that need features of their own.
ALONE = $(filter-out databases install cluster planted telemetry,$(sort $(basename $(notdir $(wildcard crates/*/tests/*)))))

# What needs no cluster, and more than a minute.
.PHONY: test-alone
test-alone:
	cargo test --locked --package keelson-kit --features otel --lib --test telemetry
	$(MAKE) sim SEEDS=20000
	$(MAKE) sim OPERATED=1 SEEDS=5000
	$(MAKE) sim-planted

# These have features of their own, so that a test that is left out is left out by name.
.PHONY: test-long
test-long: tools ## What takes longer than `make test` may: outages, generated changes of specs
	cargo build --locked --package testbed
	trap '$(TESTBED) down' EXIT; cargo test --locked --package keelson --package keelson-operator --features long-tests

.PHONY: lint
lint: tools ## Check format, lints and documentation
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- --deny warnings
	cargo clippy --locked --package keelson-kit --all-targets --all-features -- --deny warnings
	RUSTDOCFLAGS="--deny warnings" cargo doc --locked --workspace --no-deps --quiet

.PHONY: sim
sim: tools ## Live through simulated histories (SEEDS=n, FROM=x, OPERATED=1 with an operator), or through one and tell all of it (SEED=x)
	cargo run --locked --quiet --profile sim --package keelson-sim -- $(if $(OPERATED),--operated) \
	    $(if $(SEED),--seed $(SEED),$(if $(SEEDS),--seeds $(SEEDS)) $(if $(FROM),--from $(FROM)))

# The simulator finds bugs that are planted in the real code.
.PHONY: sim-planted
sim-planted: tools
	cargo test --locked --profile sim --package keelson-sim --features planted --test planted -- --nocapture

.PHONY: chaos
chaos: chaos-program ## Disturb databases on the testbed at random (MINUTES=n, SEED=x), and see that no promise is broken
	trap '$(TESTBED) down' EXIT; $(BUILT)/debug/chaos run --keelson $(BUILT)/debug/keelson \
	    $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED))

.PHONY: compare
compare: chaos-program ## Play the same short histories in the simulator and on the testbed (ONLY=names)
	trap '$(TESTBED) down' EXIT; $(BUILT)/debug/chaos compare --keelson $(BUILT)/debug/keelson $(if $(ONLY),--only $(ONLY))

.PHONY: chaos-program
chaos-program: tools
	cargo build --locked --package testbed --package keelson --package keelson-chaos

.PHONY: bench
bench: $(if $(ONLY),bench-$(ONLY),bench-kit bench-databases bench-failover) ## Measure everything into bench/ (ONLY=kit, databases or failover, OBJECTS=n, RUNS=n)

# What both take.
BENCH_OPTIONS = $(if $(OBJECTS),--objects $(OBJECTS)) $(if $(RUNS),--runs $(RUNS)) $(if $(PARTS),--only $(PARTS))

.PHONY: bench-kit
bench-kit: tools
	cargo build --locked --release --package keelson-kit --example greeting
	cargo run --locked --release --package keelson-bench -- kit $(BENCH_OPTIONS)

# What plays schedulers, kubelets and agents of a thousand databases is optimised too: it has its share of the same cores.
.PHONY: bench-databases
bench-databases: program
	cargo build --locked --release --package testbed --package keelson-bench
	trap '$(BUILT)/release/testbed down' EXIT; $(BUILT)/release/bench databases --keelson $(BUILT)/release/keelson $(BENCH_OPTIONS)

# Keelson alone, then both Patronis side by side, each on a cluster of its own: what they do most is wait.
FAILOVER = $(BUILT)/debug/bench failover --keelson $(BUILT)/release/keelson \
    $(if $(RUNS),--runs $(RUNS)) $(if $(CASES),--cases $(CASES)) $(if $(RESUME),--resume)
.PHONY: bench-failover
bench-failover: program
	cargo build --locked --package testbed --package keelson-bench
	trap '$(TESTBED) down; $(BESIDE) $(TESTBED) down' EXIT; missed=; $(if $(PARTS),$(FAILOVER) --only $(PARTS), \
	    $(FAILOVER) --only keelson || missed=1; \
	    $(BESIDE) $(FAILOVER) --only patroni-fast & $(FAILOVER) --only patroni || missed=1; wait $$! || missed=1; \
	    [ -z "$$missed" ])

.PHONY: generate
generate: tools ## Write what is generated from the types: definitions, admission rules, roles, chart, field reference
	cargo run --locked --package keelson-operator --example generate

# Building cargo-deny takes minutes, and advisories need the network: `make test` holds licences and sources by itself.
.PHONY: audit
audit: tools ## Ask cargo-deny about licences, sources, bans and known vulnerabilities of what is used
	@command -v cargo-deny >/dev/null || cargo install --locked cargo-deny
	cargo deny --locked check

.PHONY: sbom
sbom: tools ## Write what the program is made of to target/keelson.cdx.json (CycloneDX)
	@mkdir -p target
	cargo run --locked --quiet --package keelson --example sbom > target/keelson.cdx.json

.PHONY: format
format: ## Format the code
	cargo fmt --all

.PHONY: testbed
testbed: tools
	cargo build --locked --package testbed

.PHONY: cluster
cluster: testbed ## Start a Kubernetes of 3 nodes on this machine (NODES=n for another number)
	@$(TESTBED) up $(if $(NODES),--nodes $(NODES))

.PHONY: cluster-down
cluster-down: testbed ## End it and remove all traces of it
	@$(TESTBED) down

.PHONY: cluster-status
cluster-status: testbed ## Show its machines, components and the faults in force
	@$(TESTBED) status

# What the build itself needs; the testbed installs what it needs by itself.
.PHONY: tools
tools:
	@command -v cargo >/dev/null || { echo "Rust is missing: install it with rustup (stable, 1.95 or newer)" >&2; exit 1; }
	@command -v go >/dev/null || { echo "Go is missing: install version 1.26 or newer" >&2; exit 1; }
	@command -v cc >/dev/null || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq gcc libc6-dev; }
