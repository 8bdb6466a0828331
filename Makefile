# The commands that people and CI share. `make` without arguments lists them.

# The real components that the tests run: built once per version, shared by all checkouts that name the
# same folder in NETSURGEON_RIG. To build one again, delete its folder.
RIG := $(abspath $(or $(NETSURGEON_RIG),.rig))
export NETSURGEON_RIG := $(RIG)

ETCD_VERSION := 3.7.3
KUBERNETES_VERSIONS := 1.37.2 1.36.3 1.32.2
EXTERNAL_DNS_VERSION := 0.23.0
REGISTRY_VERSION := 3.1.2
CERT_MANAGER_VERSION := 1.21.2
PEBBLE_VERSION := 2.10.3
CONTAINERD_VERSION := 2.4.2
CNI_PLUGINS_VERSION := 1.10.0
COREDNS_VERSION := 1.15.0
FLANNEL_VERSION := 0.28.10
KUBE_ROUTER_VERSION := 2.1.0
MOTO_VERSION := $(shell sed -n 's/^moto==\([^ ]*\).*/\1/p' tests/moto/requirements.txt)
MINISTACK_VERSION := $(shell sed -n 's/^ministack==\([^ ]*\).*/\1/p' tests/ministack/requirements.txt)

# Tools that the targets install: `cargo install` checks every crate against the lock file of that version.
CARGO_ABOUT_VERSION := 0.9.3
CARGO_DENY_VERSION := 0.20.2
CARGO_FUZZ_VERSION := 0.13.2
CARGO_CYCLONEDX_VERSION := 0.5.9
CRANE_VERSION := 0.22.1
KREW_VERSION := 0.4.3
# Installs a subcommand of cargo, unless this version is there: name, version, more options.
installed = cargo $(1) --version 2>/dev/null | grep -qwF '$(2)' || cargo install cargo-$(1) --version $(2) --locked $(3)

ETCD := $(addprefix $(RIG)/etcd-$(ETCD_VERSION)/,etcd etcdctl etcdutl)
CONTROL_PLANES := $(KUBERNETES_VERSIONS:%=$(RIG)/k8s-%/controlplane)
EXTERNAL_DNS := $(RIG)/external-dns-$(EXTERNAL_DNS_VERSION)/external-dns
REGISTRY := $(RIG)/registry-$(REGISTRY_VERSION)/registry
CERT_MANAGER := $(RIG)/cert-manager-$(CERT_MANAGER_VERSION)/controller
PEBBLE := $(RIG)/pebble-$(PEBBLE_VERSION)/pebble
BIND := $(addprefix $(RIG)/bind9-debian/usr/,sbin/named bin/nsupdate)
# What runs on the nodes of a test: of the newest version, beside the kube-proxy in its control plane.
KUBELET := $(RIG)/kubelet-$(firstword $(KUBERNETES_VERSIONS))/node
CONTAINERD := $(addprefix $(RIG)/containerd-$(CONTAINERD_VERSION)/,containerd containerd-shim-runc-v2 ctr)
CNI_PLUGINS := $(addprefix $(RIG)/cni-plugins-$(CNI_PLUGINS_VERSION)/,bridge firewall host-local loopback portmap ptp)
COREDNS := $(RIG)/coredns-$(COREDNS_VERSION)/coredns
FLANNEL := $(RIG)/flannel-$(FLANNEL_VERSION)/flanneld
KUBE_ROUTER := $(RIG)/kube-router-$(KUBE_ROUTER_VERSION)/kube-router
PAUSE := $(RIG)/pause-1/pause
NODES := $(KUBELET) $(CONTAINERD) $(CNI_PLUGINS) $(COREDNS) $(FLANNEL) $(KUBE_ROUTER) $(PAUSE)
# Only for `make bench`; the version is that of the newest control plane.
KUBECTL_VERSION := $(firstword $(KUBERNETES_VERSIONS))
KUBECTL := $(RIG)/kubectl-$(KUBECTL_VERSION)/kubectl
MOTO := $(RIG)/moto-$(MOTO_VERSION)/bin/moto_server
MINISTACK := $(RIG)/ministack-$(MINISTACK_VERSION)/bin/ministack
# An older Go fetches the one that go.mod asks for, also if `go env` forbids that.
GO_BUILD := GOTOOLCHAIN=auto GOWORK=off go build -trimpath -buildvcs=false

# The build that `make bench AGAINST=COMMIT` compares with.
AGAINST_COMMIT = $(or $(shell git rev-parse --verify --quiet '$(AGAINST)^{commit}'),$(error AGAINST: no commit `$(AGAINST)`))
AGAINST_PROGRAM := $(if $(AGAINST),target/against/$(AGAINST_COMMIT)/netsurgeon)

# A pipe fails if any command in it fails.
SHELL := bash
.SHELLFLAGS := -o pipefail -c

.PHONY: help demo test check soak lint bench notices dist dist-check dist-twice manifests fmt rig fixtures
.PHONY: prerequisites-build prerequisites-rig prerequisites-dist prerequisites-dist-check
.DELETE_ON_ERROR:

help: ## list these commands
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

demo: prerequisites-build ## renumber a copy of a small cluster, offline
	cargo build --profile demo --locked
	target/demo/netsurgeon rehearse testdata/objects.snapshot.db --to 10.200.0.0/16

test: rig ## everything: format, lints, and the tests of every tier, including those on real etcd and real clusters
	cargo fmt --check
	$(CLIPPY)
	RUST_TEST_THREADS=$(TEST_THREADS) cargo test --locked --no-fail-fast 2>&1 | tee target/test.log || $(WHY)

check: prerequisites-build ## format, lints, and the tests that need nothing: unit tests and `tests/it`
	cargo fmt --check
	$(CLIPPY)
	cargo test --locked --lib --bins --test it

# Repeats at the end why tests failed, because the logs of their components are long.
WHY := { grep -A6 ' panicked at ' target/test.log; exit 1; }

# Tests on real components mostly wait: run more of them than there are cores, but not so many that a component starves.
TEST_THREADS := $(or $(RUST_TEST_THREADS),6)

# With the fuzz targets: they are not built with the tests.
CLIPPY := cargo clippy --workspace --all-targets --locked -- -D warnings

# The fuzzer needs options of the nightly compiler; this variable enables them in the stable one. Without
# a sanitizer: the only unsafe code of this crate is a memory map.
FUZZ := RUSTC_BOOTSTRAP=1 CARGO_PROFILE_RELEASE_LTO=off cargo fuzz
FUZZ_TARGETS := $(patsubst tests/fuzz/fuzz_targets/%.rs,%,$(wildcard tests/fuzz/fuzz_targets/*.rs))
SOAK_SECONDS ?= 60
# The inputs that a target found in earlier runs; the next run starts with them. They are not part of the repository.
CORPUS := $(abspath $(or $(NETSURGEON_CORPUS),$(HOME)/.cache/netsurgeon/corpus))

soak: rig ## every fuzz target for SOAK_SECONDS (60), then all tests with far more cases
	$(call installed,fuzz,$(CARGO_FUZZ_VERSION))
	$(FUZZ) build --fuzz-dir tests/fuzz --sanitizer none
	for target in $(FUZZ_TARGETS); do \
		echo "soak: $$target"; mkdir -p $(CORPUS)/$$target; \
		$(FUZZ) run --fuzz-dir tests/fuzz --sanitizer none $$target $(CORPUS)/$$target -- \
			-max_total_time=$(SOAK_SECONDS) -max_len=2097152 -verbosity=0 -print_final_stats=1 || exit 1; \
	done
	CARGO_PROFILE_DEV_OPT_LEVEL=1 NETSURGEON_SOAK=1 PROPTEST_CASES=4000 \
		cargo test --locked --no-fail-fast -- --include-ignored --nocapture

lint: prerequisites-build ## format, lints, and the checks of the dependencies
	cargo fmt --check
	$(CLIPPY)
	$(call installed,deny,$(CARGO_DENY_VERSION))
	cargo deny --locked check $(DENY)

# Advisories are downloaded from a separate repository; without access to it: DENY="bans licenses sources".
DENY ?= advisories bans licenses sources

notices: target/THIRD-PARTY-NOTICES ## the licences of the code in the binary, to be distributed with it

# It takes minutes of CPU time: the files of every dependency are searched for licences.
target/THIRD-PARTY-NOTICES: Cargo.lock about.toml about.hbs | prerequisites-build
	$(call installed,about,$(CARGO_ABOUT_VERSION),--features cli)
	mkdir -p target
	cargo about generate --locked --fail about.hbs --output-file $@

# A release: release/ has the steps. The folder of the build is not that of other builds, whose flags differ.
DIST_PROGRAMS := target/dist-build/programs
DIST_TARGETS := x86_64-unknown-linux-musl aarch64-unknown-linux-musl
GO_TOOLS := $(abspath target/dist-tools/crane-$(CRANE_VERSION)-krew-$(KREW_VERSION))

dist: prerequisites-dist notices ## a release in target/dist: static programs, packages, an image, sums; on Debian, for x86_64 and aarch64
	$(call installed,cyclonedx,$(CARGO_CYCLONEDX_VERSION))
	for target in $(DIST_TARGETS); do release/build.sh $$target $(DIST_PROGRAMS)/$$target || exit 1; done
	release/notices.sh target/THIRD-PARTY-NOTICES target/dist-build/THIRD-PARTY-NOTICES
	rm -rf target/dist && mkdir target/dist
	for target in $(DIST_TARGETS); do release/sbom.sh $$target target/dist/netsurgeon-$$(release/facts.sh version)-$$target.cdx.json || exit 1; done
	release/package.sh $(DIST_PROGRAMS) target/dist-build/THIRD-PARTY-NOTICES target/dist
	@ls -l target/dist

dist-check: $(REGISTRY) $(GO_TOOLS)/crane | prerequisites-dist-check ## try the release in target/dist as its users do, with the real tools; as root
	release/check.sh target/dist $(REGISTRY) $(GO_TOOLS)

# Without the debug information, in which zig records its folder.
dist-twice: ## build the commit again, in a fresh clone in another folder, and compare its sums with those in target/dist
	rm -rf target/dist-twice
	git clone --quiet . target/dist-twice/clone
	$(MAKE) -C target/dist-twice/clone dist
	diff <(grep -v debug target/dist/SHA256SUMS) <(grep -v debug target/dist-twice/clone/target/dist/SHA256SUMS)

manifests: ## write deploy/*.yaml with the image IMAGE=REGISTRY/NAME[@DIGEST] to target/manifests; without a digest, that of target/dist
	release/manifests.sh '$(IMAGE)' target/manifests

$(GO_TOOLS)/crane: | prerequisites-dist-check
	GOBIN=$(@D) go install -trimpath sigs.k8s.io/krew/cmd/krew@v$(KREW_VERSION) sigs.k8s.io/krew/cmd/validate-krew-manifest@v$(KREW_VERSION)
	GOBIN=$(@D) go install -trimpath github.com/google/go-containerregistry/cmd/crane@v$(CRANE_VERSION)

bench: rig $(KUBECTL) $(AGAINST_PROGRAM) ## time and memory of plan, rehearse and a cutover; BENCH=--json, BENCH=--mirror; AGAINST=COMMIT compares with that build
	cargo build --release --locked
	@cargo run --quiet --release --locked --example bench -- $(BENCH) $(AGAINST_PROGRAM:%=--against %)

# A build of a commit, which stays in the folder of that commit. Builds share their dependencies.
target/against/%/netsurgeon: | prerequisites-build
	rm -rf $(@D) && mkdir -p $(@D)/source
	git archive $* | tar --extract --directory $(@D)/source
	cargo build --release --locked --bin netsurgeon --manifest-path $(@D)/source/Cargo.toml --target-dir target/against/build
	rm -rf $(@D)/source
	mv target/against/build/release/netsurgeon $@

fmt: ## format the sources
	cargo fmt

fixtures: rig ## create the snapshots in testdata/ again, from real clusters
	cargo run --locked --example fixtures

rig: $(ETCD) $(CONTROL_PLANES) $(EXTERNAL_DNS) $(CERT_MANAGER) $(PEBBLE) $(REGISTRY) $(MINISTACK) $(MOTO) $(RIG)/etcd-debian/etcd $(BIND) $(NODES) | prerequisites-rig ## build the components that tests run

prerequisites-build prerequisites-rig prerequisites-dist prerequisites-dist-check: prerequisites-%:
	@tests/prerequisites.sh $*

# A program appears only when it is complete: an interrupted build leaves only a `.new`.
$(RIG)/k8s-%/controlplane: | prerequisites-rig
	mkdir -p $(@D)
	cd tests/controlplane && $(GO_BUILD) -modfile=k8s-$*.mod -ldflags "$(version_flags)" -o $@.new .
	mv $@.new $@

# Without these the components report version v0.0.0.
version_flags = -s -w \
	-X k8s.io/component-base/version.gitVersion=v$* \
	-X k8s.io/component-base/version.gitMajor=1 \
	-X k8s.io/component-base/version.gitMinor=$(word 2,$(subst ., ,$*))

$(RIG)/etcd-$(ETCD_VERSION)/etcd: package = go.etcd.io/etcd/server/v3
$(RIG)/etcd-$(ETCD_VERSION)/etcdctl: package = go.etcd.io/etcd/etcdctl/v3
$(RIG)/etcd-$(ETCD_VERSION)/etcdutl: package = go.etcd.io/etcd/etcdutl/v3
$(ETCD): | prerequisites-rig
	mkdir -p $(@D)
	cd tests/controlplane/etcd && $(GO_BUILD) -o $@.new $(package)
	mv $@.new $@

$(EXTERNAL_DNS): | prerequisites-rig
	mkdir -p $(@D)
	cd tests/externaldns && $(GO_BUILD) -o $@.new .
	mv $@.new $@

$(CERT_MANAGER): | prerequisites-rig
	mkdir -p $(@D)
	cd tests/certmanager && $(GO_BUILD) -o $@.new .
	mv $@.new $@

$(PEBBLE): | prerequisites-rig
	mkdir -p $(@D)
	cd tests/pebble && $(GO_BUILD) -o $@.new github.com/letsencrypt/pebble/v2/cmd/pebble
	mv $@.new $@

$(REGISTRY): | prerequisites-rig
	mkdir -p $(@D)
	cd tests/registry && $(GO_BUILD) -ldflags "-s -w -X github.com/distribution/distribution/v3/version.version=v$(REGISTRY_VERSION)" -o $@.new .
	mv $@.new $@

$(KUBECTL): | prerequisites-rig
	mkdir -p $(@D)
	cd tests/kubectl && $(GO_BUILD) -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=v$(KUBECTL_VERSION)" -o $@.new .
	mv $@.new $@

$(RIG)/kubelet-%/node: | prerequisites-rig
	mkdir -p $(@D)
	cd tests/controlplane && $(GO_BUILD) -modfile=k8s-$*.mod -ldflags "$(version_flags)" -o $@.new ./node
	mv $@.new $@

$(CONTAINERD): | prerequisites-rig
	mkdir -p $(@D)
	cd tests/nodes/containerd && $(GO_BUILD) -tags "no_btrfs no_devmapper no_zfs" -o $@.new \
		-ldflags "-s -w -X github.com/containerd/containerd/v2/version.Version=v$(CONTAINERD_VERSION)" \
		github.com/containerd/containerd/v2/cmd/$(@F)
	mv $@.new $@

# One command: these are small, and share nearly all of their packages.
$(CNI_PLUGINS) &: | prerequisites-rig
	rm -rf $(@D).new && mkdir -p $(@D).new
	cd tests/nodes/cni && $(GO_BUILD) -o $(@D).new/ \
		-ldflags "-s -w -X github.com/containernetworking/plugins/pkg/utils/buildversion.BuildVersion=v$(CNI_PLUGINS_VERSION)" tool
	rm -rf $(@D) && mv $(@D).new $(@D)

# Static: it runs in an image that contains nothing else.
$(COREDNS): | prerequisites-rig
	mkdir -p $(@D)
	cd tests/nodes/coredns && CGO_ENABLED=0 $(GO_BUILD) -ldflags "-s -w" -o $@.new .
	mv $@.new $@

# In a copy of its module without two of its backends: the SDK of one is not available to all, and the other needs C.
$(FLANNEL): | prerequisites-rig
	rm -rf $(@D).new && mkdir -p $(@D) $(@D).new
	cd tests/nodes/flannel && GOWORK=off go mod download github.com/flannel-io/flannel && \
		cp -R --no-preserve=mode "$$(GOWORK=off go list -m -f '{{.Dir}}' github.com/flannel-io/flannel)/." $(@D).new
	cd $(@D).new && sed -i '/backend\/tencentvpc"$$/d; /backend\/udp"$$/d' main.go && rm -r pkg/backend/tencentvpc pkg/backend/udp
	cd $(@D).new && CGO_ENABLED=0 $(GO_BUILD) -mod=mod -o $@.new \
		-ldflags "-s -w -X github.com/flannel-io/flannel/pkg/version.Version=v$(FLANNEL_VERSION)" .
	rm -rf $(@D).new && mv $@.new $@

$(KUBE_ROUTER): | prerequisites-rig
	mkdir -p $(@D)
	cd tests/nodes/kuberouter && $(GO_BUILD) -o $@.new \
		-ldflags "-s -w -X github.com/cloudnativelabs/kube-router/v2/pkg/version.Version=v$(KUBE_ROUTER_VERSION)" \
		github.com/cloudnativelabs/kube-router/v2/cmd/kube-router
	mv $@.new $@

$(PAUSE): | prerequisites-rig
	mkdir -p $(@D)
	$(CC) -static -s -Os -Wall -Wextra -Werror -o $@.new tests/nodes/pause.c
	mv $@.new $@

# pip installs what a package needs before the package, so the program appears last. Not newer than its list: every checkout has
# its own one, and another checkout may be running the program.
$(MINISTACK): requirements = tests/ministack/requirements.txt
$(MOTO): requirements = tests/moto/requirements.txt
$(MINISTACK) $(MOTO): | prerequisites-rig
	rm -rf $(patsubst %/bin,%,$(@D))
	python3 -m venv $(patsubst %/bin,%,$(@D))
	$(@D)/pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: --requirement $(requirements)
	touch $@

# Unpacked, not installed: the package starts a service on port 2379.
$(RIG)/etcd-debian/etcd: | prerequisites-rig
	rm -rf $(@D).new && mkdir -p $(@D).new
	cd $(@D).new && apt-get download etcd-server && dpkg-deb --extract etcd-server_*.deb .
	mkdir -p $(@D) && mv $(@D).new/usr/bin/etcd $@ && rm -rf $(@D).new

# The same for BIND and `nsupdate`, with their libraries, so that all have one version.
$(BIND) &: | prerequisites-rig
	rm -rf $(RIG)/bind9-debian.new && mkdir -p $(RIG)/bind9-debian.new
	cd $(RIG)/bind9-debian.new && apt-get download bind9 bind9-dnsutils bind9-libs && \
		for package in *.deb; do dpkg-deb --extract $$package . || exit 1; done && rm ./*.deb
	rm -rf $(RIG)/bind9-debian && mv $(RIG)/bind9-debian.new $(RIG)/bind9-debian
