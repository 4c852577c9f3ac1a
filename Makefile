# Everything a person or a machine does with this project. `make help` lists it.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Where cargo puts programs for this machine (see .cargo/config.toml).
BUILT = target/$(shell rustc -vV | sed -n 's/^host: //p')
TESTBED = $(BUILT)/debug/testbed
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
	cargo build --locked --package testbed
	cargo test --locked --package keelson-kit --features otel --lib --test telemetry
	trap '$(TESTBED) down' EXIT; cargo test --locked --workspace
endif

.PHONY: lint
lint: tools ## Check format, lints and documentation
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- --deny warnings
	cargo clippy --locked --package keelson-kit --all-targets --all-features -- --deny warnings
	RUSTDOCFLAGS="--deny warnings" cargo doc --locked --workspace --no-deps --quiet

.PHONY: bench
bench: $(if $(ONLY),bench-$(ONLY),bench-kit bench-databases bench-failover) ## Measure everything into bench/ (ONLY=kit, databases or failover, OBJECTS=n, RUNS=n)

# What both take.
BENCH_OPTIONS = $(if $(OBJECTS),--objects $(OBJECTS)) $(if $(RUNS),--runs $(RUNS)) $(if $(PARTS),--only $(PARTS))

.PHONY: bench-kit
bench-kit: tools
	cargo build --locked --release --package keelson-kit --example greeting
	cargo run --locked --release --package keelson-bench -- kit $(BENCH_OPTIONS)

# Only what is measured is optimised: the other program waits most of the time.
.PHONY: bench-databases
bench-databases: program
	cargo build --locked --package testbed --package keelson-bench
	trap '$(TESTBED) down' EXIT; $(BUILT)/debug/bench databases --keelson $(BUILT)/release/keelson $(BENCH_OPTIONS)

.PHONY: bench-failover
bench-failover: program
	cargo build --locked --package testbed --package keelson-bench
	trap '$(TESTBED) down' EXIT; $(BUILT)/debug/bench failover --keelson $(BUILT)/release/keelson \
	    $(if $(RUNS),--runs $(RUNS)) $(if $(PARTS),--only $(PARTS)) $(if $(CASES),--cases $(CASES)) $(if $(RESUME),--resume)

.PHONY: generate
generate: tools ## Write what is generated from the types: definitions, admission rules, roles, chart, field reference
	cargo run --locked --package keelson-operator --example generate

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
