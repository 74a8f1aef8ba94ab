# Everything a person needs is a target here; `make help` lists them.

VERSION ?= 0.1.0-dev
# Reproducible: the time of the commit, not of the build.
BUILD_UNIX ?= $(shell git log -1 --format=%ct 2>/dev/null || date +%s)
COMMIT ?= $(shell git rev-parse HEAD 2>/dev/null)
STAMP := github.com/tinylet/tinylet/agent/config/version
LDFLAGS := -s -w -X $(STAMP).release=$(VERSION) -X $(STAMP).buildUnix=$(BUILD_UNIX) -X $(STAMP).commit=$(COMMIT)
# grpcnotrace leaves out x/net/trace: 0.3 MB that nobody here looks at. Without
# inlining, Kubernetes' own code, most of it generated, takes 1 MB less, and what
# reads YAML 80 kB.
NOINLINE := $(foreach m,k8s.io sigs.k8s.io go.yaml.in,-gcflags=$(m)/...=-l)
BUILDFLAGS := -tags grpcnotrace -trimpath $(NOINLINE)
BUILD := CGO_ENABLED=0 go build $(BUILDFLAGS) -ldflags "$(LDFLAGS)"
OUT := bin
BOARDCMD := go run ./test/harness/board/cmd/board

SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c

# Lanes run beside each other; what failed in one is told again after all.
LANES = rm -f bin/failed-*; $(MAKE) --no-print-directory -j2
FAILED = || { cat bin/failed-* 2>/dev/null; exit 1; }
LANELOG = bin/lanelog -lane $(1) -keep bin/failed-$(1)

.DEFAULT_GOAL := help
.PHONY: help
help: ## this list
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build build-amd64 build-arm64 build-armv7
build: build-arm64 build-armv7 build-amd64 ## bin/tinylet-{arm64,armv7,amd64}, static
build-amd64:
	GOOS=linux GOARCH=amd64 $(BUILD) -o $(OUT)/tinylet-amd64 ./cmd/tinylet
build-arm64:
	GOOS=linux GOARCH=arm64 $(BUILD) -o $(OUT)/tinylet-arm64 ./cmd/tinylet
build-armv7:
	GOOS=linux GOARCH=arm GOARM=7 $(BUILD) -o $(OUT)/tinylet-armv7 ./cmd/tinylet

.PHONY: demo
demo: host build-arm64 ## boot a simulated 512 MB board with sample pods (KEEP=1 leaves a console)
	go run ./test/tools/demo $(if $(KEEP),-keep)

.PHONY: test
# A board alone leaves a quarter of two processors idle: two at a time. Each suite
# and each step of TestBoard but the budgets runs once, on one of the boards
# (ONCE); make test-board runs on both all that may depend on the architecture.
test: host browser lint test-unit build size test-release boards ## everything that CI runs, boards and power cuts included (root)
	@$(LANES) ONCE=1 test-board-pods test-board-armv7 test-board-arm64 test-cluster-power test-board-stock $(FAILED)

.PHONY: check docs
check: lint ## what to run before a commit: the analyzers and the unit tests; no root, no downloads of Debian
	go test ./...
docs: ## what documents have from the code: commands, man pages, completions, configuration, figures, the screenshot
	go test ./cmd/tinylet -run TestDocuments -update
	go test ./agent/config -run TestReference -update
	go test ./test/bench -run TestSummary -update
	PAGE_PICTURES=$(CURDIR)/docs/images go test -count=1 ./agent/server/statuspage -run TestScreenshot

.PHONY: browser
browser: # headless Chromium for tests of the status page, where the distribution has it; without it they are skipped
	@for b in chromium-headless-shell chromium chromium-browser google-chrome; do if command -v $$b >/dev/null; then exit 0; fi; done; \
	echo "installing with apt-get, once: chromium-headless-shell fonts-dejavu-core"; \
	sudo=$$([ "$$(id -u)" = 0 ] || echo sudo); \
	{ $$sudo apt-get update -qq; $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium-headless-shell fonts-dejavu-core >/dev/null; } \
	|| echo "Chromium could not be installed: what is tested of the status page in a browser is skipped"

# With two processors the race detector itself fails at times ("CHECK failed:
# tsan_rtl.cpp") in a bubble of testing/synctest whose timers are due: the bubble
# has one racectx for all of them (https://go.dev/issue/78156, open with Go 1.26).
# So packages that have bubbles run with one processor.
BUBBLES = go list -f '{{.ImportPath}} {{.TestImports}} {{.XTestImports}}' ./... | grep testing/synctest | cut -d' ' -f1
.PHONY: test-unit
test-unit: ## unit tests with the race detector
	go test -race -cpu 1 $$($(BUBBLES))
	go test -race $$(go list ./... | grep -vxF -f <($(BUBBLES)))
	cd agent/node/nodestatus/testdata/strategicpatch && go test ./...
	cd agent/apiserver/statusmanager/testdata/strategicpatch && go test ./...
	cd agent/server/streaming/testdata/upstream && go test ./...
	cd agent/config/kubeletconfig/testdata/upstream && go test ./...
	cd net/cni/testdata/libcni && go test ./...
	cd net/cni/plugin/testdata/upstream && go test ./...

.PHONY: test-manifests
# With the flags of the control plane, which shares these packages.
test-manifests: ## defaults and validation of static pods beside the kubelet's own code (no root; builds a part of Kubernetes, minutes the first time; not in test)
	cd agent/source/manifest/testdata/upstream && CGO_ENABLED=0 go test -vet=off -trimpath ./...

PODS = TestPod|TestManifests|TestPressure
SKIP_arm64 = $(if $(ONCE),-skip '^($(PODS)|TestCPUs|TestNetwork|TestOutOfMemory|TestWithoutMemoryController)$$|^TestBoard$$/^(three_pods|manifests_change|groups_of_memory)$$')
SKIP_armv7 = $(if $(ONCE),-skip '^TestManifests$$|^TestBoard$$/^agent_killed$$')
.PHONY: test-board test-board-arm64 test-board-armv7
test-board: boards build-arm64 build-armv7 ## end to end on a simulated arm64 and a simulated armv7 board, both at a time
	@$(LANES) test-board-arm64 test-board-armv7 $(FAILED)
test-board-arm64: host build-arm64 bin/lanelog
	BOARD_ARCH=arm64 go test -json -tags board -count=1 -timeout 80m $(SKIP_arm64) ./test/suites/standalone 2>&1 | $(call LANELOG,arm64)
	BOARD_ARCH=arm64 go test -json -tags board -count=1 -timeout 20m -run TestRuntimeConformance ./test/harness/board 2>&1 | $(call LANELOG,arm64)
test-board-armv7: host build-armv7 bin/lanelog
	BOARD_ARCH=armv7 go test -json -tags board -count=1 -timeout 60m $(SKIP_armv7) ./test/suites/standalone 2>&1 | $(call LANELOG,armv7)

.PHONY: test-board-pods test-board-stock
test-board-pods: host build-arm64 bin/lanelog # what a pod's spec can ask for, and a board out of memory: a part of test-board-arm64
	BOARD_ARCH=arm64 EVICTION_ROUNDS=1 go test -json -tags board -count=1 -timeout 60m -run '^($(PODS))$$' ./test/suites/standalone 2>&1 | $(call LANELOG,pods)
test-board-stock: host build-arm64 bin/lanelog # pods with containerd as it comes, without any configuration of ours
	BOARD_ARCH=arm64 BOARD_STOCK=2.4 go test -json -tags board -count=1 -timeout 20m -run '^TestStock$$' ./test/suites/standalone 2>&1 | $(call LANELOG,stock)

bin/lanelog: test/tools/lanelog/main.go test/tools/lanelog/follow.go
	go build -o $@ ./test/tools/lanelog

.PHONY: test-pod test-systemd e2e-power
test-pod: host build-arm64 ## all that a pod's spec can ask for, on a simulated arm64 board (a part of test-board-arm64), and what probes cost
	BOARD_ARCH=arm64 BOARD_PROBES=1 go test -tags board -count=1 -timeout 30m -v -run '^(TestPod|TestManifests|TestProbeBudget)$$' ./test/suites/standalone
test-systemd: host build-arm64 control-plane ## a simulated arm64 board whose process 1 is systemd, with which the runtime makes cgroups: pods, and as a node of a real control plane resizes and memory pressure (root, slow, not in test)
	BOARD_ARCH=arm64 BOARD_SYSTEMD=1 go test -tags board -count=1 -timeout 45m -v -run '^TestSystemd$$' ./test/suites/standalone
	BOARD_ARCH=arm64 BOARD_SYSTEMD=1 go test -tags cluster -count=1 -timeout 45m -v -run '^(TestResize|TestMemoryPressure)$$' ./test/suites/cluster
.PHONY: test-native
test-native: host stock-kubelet ## the conformance suite for the native driver on arm64 boards with systemd, and with the upstream CNI plugins (root, slow, not in test)
	BOARD_ARCH=arm64 BOARD_SYSTEMD=1 go test -tags board -count=1 -timeout 45m -v -run '^TestRuntimeConformance$$/^(native|recovery)$$' ./test/harness/board
	BOARD_ARCH=arm64 BOARD_CNI=$(CURDIR)/.cache/kubelet/cni go test -tags board -count=1 -timeout 45m -v -run '^TestRuntimeConformance$$/^native$$' ./test/harness/board
# A runtime in its own configuration (test/harness/board/stock.go): "debian" has systemd and
# Debian's containerd 1.7, the others are containerd of that branch by default.
STOCKS ?= debian 2.0 2.3 2.4
.PHONY: test-stock
test-stock: host build-arm64 control-plane-servers ## pods, and a node of a real control plane, with each container runtime of STOCKS in its stock configuration (root, slow, not in test)
	@for s in $(STOCKS); do \
	  BOARD_ARCH=arm64 BOARD_STOCK=$$s go test -tags board -count=1 -timeout 30m -v -run '^(TestStock|TestRuntimeUpgrade)$$' ./test/suites/standalone || exit 1; \
	  BOARD_ARCH=arm64 BOARD_STOCK=$$s EVICTION_ROUNDS=1 go test -tags cluster -count=1 -timeout 45m -v -run '^(TestNode|TestOffline|TestServices|TestMemoryPressure)$$' ./test/suites/cluster || exit 1; \
	done
.PHONY: test-hostile test-hostile-arm64 test-hostile-armv7
test-hostile: test-hostile-arm64 test-hostile-armv7 ## containers that put all they can into what the agent reads of them, on a simulated arm64 and armv7 board of 256 MB (slow, not in test)
test-hostile-arm64 test-hostile-armv7: test-hostile-%: host build-%
	BOARD_ARCH=$* BOARD_HOSTILE=1 go test -tags board -count=1 -timeout 60m -v -run '^TestHostile$$' ./test/suites/standalone
e2e-power: host build-arm64 ## ten power cuts in the phases of a pod with every kind of volume (slow, not in test)
	BOARD_ARCH=arm64 BOARD_POWER=1 go test -tags board -count=1 -timeout 45m -v -run TestPodPowerCut ./test/suites/standalone

.PHONY: stock-kubelet test-adopt compare-cgroups
STOCK_PLUGINS := $(addprefix github.com/containernetworking/plugins/plugins/,main/bridge main/loopback ipam/host-local meta/portmap)
stock-kubelet: # the stock kubelet and the upstream CNI plugins for arm64; minutes the first time, then cached
	@echo "building the stock kubelet v1.36.3 (about 8 minutes the first time)"
	cd test/suites/handover/kubelet && CGO_ENABLED=0 GOOS=linux GOARCH=arm64 go build -trimpath \
	  -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=v1.36.3" -o $(CURDIR)/.cache/kubelet/kubelet-arm64 .
	cd net/cni/plugin/testdata/upstream && CGO_ENABLED=0 GOOS=linux GOARCH=arm64 go build -trimpath -ldflags "-s -w" -o $(CURDIR)/.cache/kubelet/cni/ $(STOCK_PLUGINS)
test-adopt: host build-arm64 stock-kubelet ## a stock kubelet and tinylet take over from each other on a board (slow, not in test)
	go test -tags adopt -count=1 -timeout 25m -v -skip TestCgroupValues ./test/suites/handover
compare-cgroups: host build-arm64 stock-kubelet ## what a stock kubelet and tinylet write into the cgroups of 32 pods, without and with memory QoS; RECORD=1 keeps the kubelet's (slow, not in test)
	go test -tags adopt -count=1 -timeout 45m -v -run TestCgroupValues ./test/suites/handover

.PHONY: control-plane control-plane-servers metrics-server test-cluster test-cluster-power soak-power soak-power-arm64 soak-power-armv7
KUBERNETES := k8s.io/component-base/version
KUBERNETES_STAMP := -s -w -X $(KUBERNETES).gitVersion=v1.36.3 -X $(KUBERNETES).gitMajor=1 -X $(KUBERNETES).gitMinor=36
control-plane: control-plane-servers # and kubeadm for a board
	cd test/harness/controlplane/servers && CGO_ENABLED=0 GOOS=linux GOARCH=arm64 go build -trimpath -ldflags "$(KUBERNETES_STAMP)" \
	  -o $(CURDIR)/.cache/cluster/kubeadm-arm64 k8s.io/kubernetes/cmd/kubeadm
control-plane-servers: # Kubernetes' servers and etcd for this machine; minutes the first time, then cached
	@echo "building the control plane v1.36.3 (about 8 minutes the first time)"
	cd test/harness/controlplane/servers && CGO_ENABLED=0 go build -trimpath -ldflags "$(KUBERNETES_STAMP)" -o $(CURDIR)/.cache/cluster/servers .
	cd test/harness/controlplane/etcd && CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o $(CURDIR)/.cache/cluster/etcd .
metrics-server: # for kubectl top; minutes the first time, then cached
	@echo "building metrics-server v0.9.0 (about 5 minutes the first time)"
	cd test/harness/controlplane/metricsserver && CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o $(CURDIR)/.cache/cluster/metrics-server .
test-cluster: host build-arm64 control-plane metrics-server ## boards beside a real control plane, on a network of their own (root, slow, not in test)
	go test -tags cluster -count=1 -p 1 -timeout 150m -v -skip '^TestPowerCuts$$' ./test/harness/controlplane/... ./test/suites/cluster

POWER := go test -json -tags cluster -count=1 -run '^TestPowerCuts$$'
test-cluster-power: host build-arm64 control-plane-servers bin/lanelog ## ten power cuts of an arm64 board that is a node of a real control plane (root)
	BOARD_ARCH=arm64 POWER_CYCLES=10 $(POWER) -timeout 30m ./test/suites/cluster 2>&1 | $(call LANELOG,power)
# An emulated armv7 is the slower one: so both end at about the same time.
CYCLES_arm64 := 120
CYCLES_armv7 := 80
soak-power: host build-arm64 build-armv7 control-plane-servers bin/lanelog ## 200 power cuts of an arm64 and an armv7 board that are nodes, both at a time, or CYCLES each; SEED=n repeats a run (root, slow)
	@$(LANES) soak-power-arm64 soak-power-armv7 $(FAILED)
soak-power-arm64 soak-power-armv7: soak-power-%: bin/lanelog
	BOARD_ARCH=$* POWER_CYCLES=$(or $(CYCLES),$(CYCLES_$*)) POWER_SEED=$(SEED) $(POWER) -timeout 4h ./test/suites/cluster 2>&1 | $(call LANELOG,power-$*)

.PHONY: conformance-programs test-conformance
conformance-programs: # upstream's tests and what runs them, and the programs of their images; minutes the first time, then cached
	@echo "building upstream's end-to-end tests v1.36.3 (about 10 minutes the first time)"
	cd test/suites/conformance/upstream && export CGO_ENABLED=0 && out=$(CURDIR)/.cache/conformance && \
	go build -trimpath -ldflags "-s -w" -o $$out/ginkgo github.com/onsi/ginkgo/v2/ginkgo && \
	go test -c -vet=off -trimpath -ldflags "$(KUBERNETES_STAMP)" -o $$out/e2e.test k8s.io/kubernetes/test/e2e && \
	export GOOS=linux GOARCH=arm64 && \
	go build -trimpath -ldflags "-s -w" -o $$out/agnhost ./agnhost && \
	go build -trimpath -ldflags "-s -w" -o $$out/agnhost-upstream k8s.io/kubernetes/test/images/agnhost && \
	go build -trimpath -ldflags "-s -w" -o $$out/nonewprivs k8s.io/kubernetes/test/images/nonewprivs && \
	install -m 644 "$$(go list -m -f '{{.Dir}}' k8s.io/kubernetes)"/test/images/agnhost/porter/localhost.* $$out/
test-conformance: host build-arm64 control-plane-servers conformance-programs ## upstream's node and storage tests against a board that is a node, or those of CONFORMANCE_FOCUS, for at most CONFORMANCE_TIME, without those that passed in the report CONFORMANCE_EARLIER; writes docs/reference/conformance.md (root, an hour, not in test)
	go test -tags cluster -count=1 -timeout 8h -v -artifacts -outputdir $(CURDIR)/.cache/conformance -run '^TestConformance$$' ./test/suites/conformance

.PHONY: critest-programs test-critest
CRI_TOOLS := sigs.k8s.io/cri-tools
critest-programs: # upstream's critest, the driver that it tests, and a stand-in for programs of its images, for arm64
	export CGO_ENABLED=0 GOOS=linux GOARCH=arm64 out=$(CURDIR)/.cache/critest && \
	go test -c -trimpath -ldflags "-s -w" -o $$out/native.test ./agent/container/native && \
	go build -trimpath -ldflags "-s -w" -o $$out/standin ./test/suites/critest/standin && \
	cd test/suites/critest/upstream && version=$$(go list -m -f '{{.Version}}' $(CRI_TOOLS)) && \
	go test -c -vet=off -trimpath -ldflags "-s -w -X $(CRI_TOOLS)/pkg/version.Version=$$version" -o $$out/critest $(CRI_TOOLS)/cmd/critest
test-critest: host critest-programs ## upstream's tests of container runtimes, critest, against the driver native on a simulated arm64 board, or those of CRITEST_FOCUS (slow, not in test)
	go test -tags board -count=1 -timeout 60m -v -artifacts -outputdir $(CURDIR)/.cache/critest -run '^TestCritest$$' ./test/suites/critest

.PHONY: addons-programs test-addons
ADDONS := cd test/suites/addons/programs
ADDON := CGO_ENABLED=0 GOOS=linux GOARCH=arm64 go build -trimpath -ldflags "-s -w" -o $(CURDIR)/.cache/addons/
CNI_PLUGINS := $(addprefix github.com/containernetworking/plugins/plugins/,main/bridge main/loopback ipam/host-local meta/portmap meta/bandwidth)
addons-programs: # the add-ons of clusters for arm64, and Prometheus for this machine; minutes the first time, then cached
	@echo "building the add-ons of clusters (up to three quarters of an hour the first time, on a busy machine)"
	$(ADDONS)/kubeproxy && CGO_ENABLED=0 GOOS=linux GOARCH=arm64 go build -trimpath -ldflags "$(KUBERNETES_STAMP)" \
	  -o $(CURDIR)/.cache/addons/ k8s.io/kubernetes/cmd/kube-proxy
	$(ADDONS)/coredns && $(ADDON) .
	$(ADDONS)/nodeexporter && $(ADDON) github.com/prometheus/node_exporter
	$(ADDONS)/cniplugins && $(ADDON) $(CNI_PLUGINS)
	$(ADDONS)/flannelcni && $(ADDON)flannel github.com/containernetworking/plugins/plugins/meta/flannel
	$(ADDONS)/flannel && $(ADDON)flanneld github.com/flannel-io/flannel
	$(ADDONS)/prometheus && CGO_ENABLED=0 go build -trimpath -tags remove_all_sd,enable_kubernetes_sd -ldflags "-s -w" \
	  -o $(CURDIR)/.cache/addons/ github.com/prometheus/prometheus/cmd/prometheus
	cd test/harness/controlplane/metricsserver && $(ADDON)metrics-server .
test-addons: host build-arm64 control-plane-servers addons-programs ## kube-proxy, CoreDNS, flannel, metrics-server, node-exporter and Prometheus with a board that is a node (root, slow, not in test)
	go test -tags cluster -count=1 -timeout 90m -v -run '^TestAddons$$' ./test/suites/addons

.PHONY: bench bench-burst bench-room bench-code
bench: host build-arm64 stock-kubelet control-plane ## tinylet beside the stock kubelet on one board (root, half an hour, wants a quiet machine); writes test/bench/RESULTS.md
	go test -tags cluster -count=1 -timeout 120m -v -run '^TestComparison$$' ./test/bench
bench-room: host build-arm64 stock-kubelet control-plane-servers ## memory of a board of 256 MB that is a node, and how many pods it has room for, with tinylet and with the stock kubelet (root, slow)
	go test -tags cluster -count=1 -timeout 60m -v -run '^TestRoom$$' ./test/bench
bench-burst: host build-arm64 stock-kubelet ## ten pods at once on a board that is alone, tinylet and the stock kubelet in turn: when each ran, and what used the CPU; BURST_ROUNDS=n boards for each, BOARD_STOCK=2.4 another container runtime, BURST_TRACE=1 prints the calls of the container runtime
	go test -tags cluster -count=1 -timeout 120m -v -run '^TestBurst$$' ./test/bench
bench-code: ## benchmarks of the code, with allocations
	go test -run '^$$' -bench . -benchmem ./agent/... ./cgroups/... ./net/...

.PHONY: fuzz
fuzz: ## each fuzz target for FUZZTIME (10s)
	go run ./test/tools/fuzz -time $(or $(FUZZTIME),10s)

.PHONY: lint
lint: ## gofmt, go vet and the pinned analyzers
	@files=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$files" ]; then echo "not gofmt-ed: $$files"; exit 1; fi
	go vet ./...
	go vet -tags board ./test/...
	go vet -tags adopt ./test/...
	go vet -tags cluster ./test/...
	go vet -tags release ./test/...
	cd test/tools/lint && go build -o ../../../bin/lint .
	go vet -vettool=$(CURDIR)/bin/lint ./...

.PHONY: vuln
vuln: ## known vulnerabilities in what the binary calls, the standard library included; needs https://vuln.go.dev, or VULNDB=file:///folder with a copy of it
	cd test/tools/lint && go build -o ../../../bin/govulncheck golang.org/x/vuln/cmd/govulncheck
	GOOS=linux GOARCH=arm64 CGO_ENABLED=0 bin/govulncheck -tags grpcnotrace $(if $(VULNDB),-db $(VULNDB)) ./cmd/tinylet

DEB := board/debian/build
KUBELET := $(shell sed -n 's/^const Kubernetes = "v\(.*\)"/\1/p' agent/config/version/version.go)
.PHONY: deb deb-host
deb: deb-host build ## bin/tinylet_VERSION_{arm64,armhf,amd64}.deb for Debian 12 or later and Raspberry Pi OS, checked by lintian
	$(DEB) arm64 $(VERSION) $(KUBELET) $(BUILD_UNIX) bin/tinylet-arm64 bin
	$(DEB) armhf $(VERSION) $(KUBELET) $(BUILD_UNIX) bin/tinylet-armv7 bin
	$(DEB) amd64 $(VERSION) $(KUBELET) $(BUILD_UNIX) bin/tinylet-amd64 bin
	lintian --fail-on error,warning --allow-root bin/tinylet_*.deb
.PHONY: test-deb test-deb-arm64 test-deb-armv7 test-deb-cluster test-deb-power upgrade-versions-arm64 upgrade-versions-armv7
test-deb: test-deb-arm64 test-deb-armv7 test-deb-cluster test-deb-power ## install, upgrade, downgrade, remove and purge the packages on simulated arm64 and armv7 boards with Debian 13, one of them a node of a real control plane, and cut their power; tinylet upgrade on boards with BusyBox init (root, slow, not in test)
DEBS := $(CURDIR)/.cache/debs
test-deb-arm64 test-deb-armv7: test-deb-%: host upgrade-versions-%
	BOARD_ARCH=$* BOARD_DEBS=$(DEBS)/$* go test -tags board -count=1 -timeout 90m -v -run '^(TestPackage|TestPackageWithoutCgroup2|TestRaspberryPiOS|TestUpgradeCommand)$$' ./test/suites/standalone
test-deb-cluster: host upgrade-versions-arm64 control-plane-servers
	BOARD_ARCH=arm64 BOARD_DEBS=$(DEBS)/arm64 go test -tags cluster -count=1 -timeout 45m -v -run '^TestPackageNode$$' ./test/suites/cluster
# CUTS of the power during upgrades of the package; SEED=n repeats a run.
test-deb-power: host upgrade-versions-arm64
	BOARD_ARCH=arm64 BOARD_DEBS=$(DEBS)/arm64 CUTS=$(CUTS) SEED=$(SEED) go test -tags board -count=1 -timeout 4h -v -run '^TestPackagePowerCuts$$' ./test/suites/standalone
# Three versions of the binary and of the package: old, new, and next, whose journal has a
# format that the others do not know.
JOURNAL := agent/store/journal/header.go
upgrade-versions-arm64: export debian = arm64
upgrade-versions-armv7: export debian = armhf
upgrade-versions-arm64 upgrade-versions-armv7: upgrade-versions-%: deb-host
	rm -rf $(DEBS)/$* && mkdir -p $(DEBS)/$*
	sed 's/^\tversion      = 1$$/\tversion      = 2/' $(JOURNAL) > $(DEBS)/$*/header.go && ! cmp -s $(JOURNAL) $(DEBS)/$*/header.go
	echo '{"Replace": {"$(CURDIR)/$(JOURNAL)": "$(DEBS)/$*/header.go"}}' > $(DEBS)/$*/overlay.json
	$(MAKE) --no-print-directory VERSION=0.1.0-old OUT=$(DEBS)/$*/old build-$*
	$(MAKE) --no-print-directory VERSION=0.1.0 OUT=$(DEBS)/$*/new build-$*
	GOFLAGS="$$(go env GOFLAGS) -overlay=$(DEBS)/$*/overlay.json" $(MAKE) --no-print-directory VERSION=0.2.0 OUT=$(DEBS)/$*/next build-$*
	$(DEB) $$debian 0.1.0-old $(KUBELET) $(BUILD_UNIX) $(DEBS)/$*/old/tinylet-$* $(DEBS)/$*/old
	$(DEB) $$debian 0.1.0 $(KUBELET) $(BUILD_UNIX) $(DEBS)/$*/new/tinylet-$* $(DEBS)/$*/new
	$(DEB) $$debian 0.2.0 $(KUBELET) $(BUILD_UNIX) $(DEBS)/$*/next/tinylet-$* $(DEBS)/$*/next
# APT_TOOLS installs a package, the second argument, unless the program of the first is there.
APT_TOOLS = @if ! command -v $(1) >/dev/null; then \
	  echo "installing with apt-get, once: $(2)"; \
	  sudo=$$([ "$$(id -u)" = 0 ] || echo sudo); \
	  $$sudo apt-get update -qq; $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(2) >/dev/null; \
	fi
deb-host: # what builds and checks packages, on Debian
	$(call APT_TOOLS,dh,debhelper)
	$(call APT_TOOLS,lintian,lintian)

.PHONY: release test-release
release: deb ## bin/release: binaries, packages, SBOMs, changelog, install script, and their signed checksums; KEY=file is the Ed25519 key
	cd test/tools/sbom && go build -o ../../../bin/cyclonedx-gomod github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod
	board/release/build $(VERSION) $(COMMIT) $(KEY) bin $(OUT)/release
test-release: deb-host ## two builds of a release in different directories have the same bytes, and the install script refuses a changed one
	go test -tags release -count=1 -timeout 30m -v ./test/suites/release

.PHONY: size
size: build-arm64 ## the arm64 binary against its limit of 30 MB, and what it links against docs/dev/size.md; WRITE=1 writes that
	go run ./test/tools/size $(if $(WRITE),-write) -- $(BUILDFLAGS)
	@ls -l bin/tinylet-arm64 | awk '{if ($$5 > 30e6) {printf "tinylet arm64 has %.1f MB of 30 MB\n", $$5/1e6; exit 1}}'

.PHONY: deps
deps: ## accept the packages that the binary links now
	go test ./test/arch -run TestDependencies -update

.PHONY: boards
boards: host ## make the disk images of both simulated boards
	$(BOARDCMD) build --arch arm64
	$(BOARDCMD) build --arch armv7

# A board's image, made by Buildroot from the tree in buildroot/. Variables of this make
# must not reach Buildroot.
IMAGES := $(patsubst buildroot/configs/tinylet_%_defconfig,%,$(wildcard buildroot/configs/tinylet_*_defconfig))
IMAGE_DIR = $(CURDIR)/.cache/buildroot/$(BOARD)
BUILDROOT_MAKE = env -u MAKEFLAGS -u MAKEOVERRIDES -u MFLAGS make
.PHONY: image image-size
image: ## the image of BOARD=qemu_aarch64_virt (or another of buildroot/configs) with Buildroot in BUILDROOT=directory, and its sizes (hours the first time); FRAGMENT=file has options of Buildroot that replace those of the board
	@case " $(IMAGES) " in *" $(BOARD) "*) ;; *) echo "BOARD=$(BOARD): set it to one of $(IMAGES)"; exit 1;; esac
	@test -e "$(BUILDROOT)/support/kconfig" || { echo "BUILDROOT=$(BUILDROOT): set it to a directory of Buildroot 2026.02.2 or later of 2026.02.x (long-term support), or 2026.08, from https://buildroot.org/download.html"; exit 1; }
	@mkdir -p $(IMAGE_DIR)
	cat buildroot/configs/tinylet_$(BOARD)_defconfig $(FRAGMENT) > $(IMAGE_DIR)/tinylet_defconfig
	$(BUILDROOT_MAKE) -C $(BUILDROOT) BR2_EXTERNAL=$(CURDIR)/buildroot O=$(abspath $(IMAGE_DIR)) BR2_DEFCONFIG=$(abspath $(IMAGE_DIR))/tinylet_defconfig defconfig
	$(BUILDROOT_MAKE) -C $(IMAGE_DIR)
	@buildroot/image-size $(IMAGE_DIR)
image-size: ## what is in the image of BOARD, by package
	@buildroot/image-size $(IMAGE_DIR)
# IMAGE is the directory with the image's files. CUTS and SEED are of the power cuts.
IMAGE ?= $(IMAGE_DIR)/images
.PHONY: test-image image-host
image-host: # what reads and changes an image
	$(call APT_TOOLS,sfdisk,fdisk)
	$(call APT_TOOLS,mcopy,mtools)
	$(call APT_TOOLS,ssh,openssh-client)
test-image: host image-host control-plane-servers ## boot the QEMU image in IMAGE=directory beside a real control plane: provisioning, ten pods, power cuts, faults of the data partition (root, slow, not in test)
	IMAGE=$(IMAGE) go test -tags cluster -count=1 -timeout 150m -v ./test/suites/image

.PHONY: host
host: ## install the distribution's packages that the boards need, and say which
	@missing=$$($(BOARDCMD) packages) || exit 1; \
	if [ -n "$$missing" ]; then \
	  echo "installing with apt-get, once: $$missing"; \
	  sudo=$$([ "$$(id -u)" = 0 ] || echo sudo); \
	  $$sudo apt-get update -qq || echo "not all of the package index could be had: trying with what is there"; \
	  $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
	fi

.PHONY: clean
clean: ## remove what was built and the boards' cache
	rm -rf bin .cache
