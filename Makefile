# Thin names over cargo and hack/*.sh.

.DEFAULT_GOAL := help
.PHONY: help setup build generate release reproduce manifests book deny lint test demo model mutants sabotage
.PHONY: bench bench-clusters bench-docker bench-reconciles

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

setup: ## Install what building and testing need and this computer lacks
	hack/setup.sh

build: ## Build every program (target/debug)
	cargo build --workspace --bins

generate: ## Write config/crd and docs/api-reference.md again from the types in api/ and local-infrastructure/
	cargo run --quiet -p manager --bin generate-crds
	cargo run --quiet -p local-infrastructure -- crds --out config/crd/local

release: ## Write what a release page holds (out/release): manifests, programs, images
	SETUP_RELEASE=1 bash -ec '. hack/setup.sh; hack/release.sh'

reproduce: ## Build a release twice, at two places, and see that it is the same (ARCHITECTURES=amd64: one architecture)
	SETUP_RELEASE=1 bash -ec '. hack/setup.sh; hack/reproduce.sh'

manifests: ## Write only what a release page has to apply or import (out/release); compiles nothing
	hack/release.sh --manifests

book: ## Build the site of the documentation (out/book); installs mdbook
	hack/book.sh

lint: ## Check formatting, lints and rustdoc
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	cargo clippy --workspace --test docker -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

deny: ## Check dependencies: licences, duplicates, vulnerabilities (installs cargo-deny)
	hack/deny.sh

test: ## Run every test that CI runs (hack/test.sh --help: one tier, one test)
	hack/test.sh

model: ## Check the plan of etcd's controller in many more states than the unit tests do
	E2E_FULL=1 cargo test --release -p etcd-cluster-controller --test model -- --nocapture

mutants: ## Break each rule of that plan on purpose, and see that the model check or a unit test notices
	hack/mutants.sh

sabotage: ## Break the product on purpose, and see that a scenario on real parts catches it (hack/sabotage.sh NAME: one)
	hack/sabotage.sh

demo: ## Show an etcd cluster and its control plane come up on this computer
	hack/demo.sh

bench: ## Measure bring-up, a rollout, API requests, memory and many clusters; as root with docker too
	cargo build --release --workspace --bins
	"$${CARGO_TARGET_DIR:-target}/release/bench"
	$(MAKE) bench-clusters
	if [ "$$(id -u)" = 0 ]; then $(MAKE) bench-docker; fi

CLUSTERS ?= 10,100,500,1000,2000

bench-clusters: ## Measure the manager with many clusters, and how soon it sees deaths in them (CLUSTERS=10,100)
	cargo build --release --workspace --bins
	"$${CARGO_TARGET_DIR:-target}/release/bench" --clusters $(CLUSTERS)

bench-reconciles: ## Measure the cost of a reconcile beside 10, 100 and 1,000 clusters; fails if it grows with them
	cargo build --release --workspace --bins
	"$${CARGO_TARGET_DIR:-target}/release/bench" --reconciles

bench-docker: ## Measure the way to a Kubernetes cluster and a repair on docker, as root
	SETUP_DOCKER=1 hack/setup.sh
	cargo build --release --workspace --bins
	cargo rustc --release -p etcdadm --bin etcdadm -- -C target-feature=+crt-static
	"$${CARGO_TARGET_DIR:-target}/release/bench" --infrastructure docker
