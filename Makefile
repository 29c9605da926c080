# The workshop: `make help` says what is in it. Every tool is pinned by a go.mod file and built from the Go module proxy.

VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
REVISION ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)

module   := github.com/argocd-agent-mesh/argocd-agent-mesh
binaries := ./principal ./agent ./kubeproxy ./redisproxy ./xds
cli      := argocd-agentctl
ldflags  := -s -w -X $(module)/internal/base/version.version=$(VERSION) -X $(module)/internal/base/version.revision=$(REVISION)

# Modules that hold code of ours; the others only pin tools. They are found without git: a tarball has none.
code_modules := . e2e e2e/contract e2e/tools/certmanager e2e/tools/dns tools/proto tools/release
all_modules   = $(patsubst ./%,%,$(patsubst %/,%,$(dir $(shell find . -name go.mod -not -path '*/.*/*' | sort))))

# The linter takes minutes to build, so it is kept outside the checkout, under the hash of what pins it.
tool_cache  := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/argocd-agent-mesh/tools
lint_hash   := $(shell cat tools/lint/go.mod tools/lint/go.sum | sha256sum | cut -c1-16)
golangci    := $(tool_cache)/$(lint_hash)/golangci-lint

# The CloudEvents module ships its .proto beside its Go code; we import that one rather than keep a copy.
proto_files  := api/enroll/v1/enroll.proto api/lookup/v1/lookup.proto api/peer/v1/peer.proto api/sync/v1/sync.proto api/tunnel/v1/tunnel.proto
cloudevents  := github.com/cloudevents/sdk-go/binding/format/protobuf/v2/pb
proto         = go -C tools/proto run . -root $(CURDIR) -I "$$(go list -f '{{.Dir}}' $(cloudevents))"

.DEFAULT_GOAL := help
.NOTPARALLEL:

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build the binaries into bin/
	CGO_ENABLED=0 go build -trimpath -ldflags '$(ldflags)' -o bin/ $(binaries)
	CGO_ENABLED=0 go build -trimpath -ldflags '$(ldflags)' -o bin/$(cli) ./agentctl

PLATFORMS ?= linux/amd64,linux/arm64

# All that is made has the time of the commit, so that who builds it again has the same to the byte.
.PHONY: images
images: ## Build an OCI layout of each program into dist/images, with what is in it as SPDX; PLATFORMS
	go -C tools/release run . images $(released)

released = -root $(CURDIR) -out $(CURDIR)/dist -version $(VERSION) -revision $(REVISION) \
	-created "$$(git log -1 --format=%ct 2>/dev/null || echo 0)" -platforms $(PLATFORMS)

# The tag is the last step: a release that could not be made leaves none. Who publishes it pushes the tag, the images and the files.
.PHONY: release
release: ## Make a release in dist/VERSION and tag it, here only: VERSION=v0.1.0
	@test -z "$$(git status --porcelain)" || { echo "there are changes that are not committed: a release is of a commit"; exit 1; }
	@tagged=$$(git rev-parse -q --verify 'refs/tags/$(VERSION)^{commit}') || exit 0; \
	test "$$tagged" = "$(REVISION)" || { echo "$(VERSION) is the tag of $$tagged already: release another version"; exit 1; }
	go -C tools/release run . all $(released)
	@git rev-parse -q --verify 'refs/tags/$(VERSION)' >/dev/null || git tag -a -m '$(VERSION)' '$(VERSION)'

.PHONY: manifests
manifests: tools ## Render the charts as folders for kubectl apply -k, into dist/manifests
	cd e2e && go run ./cmd/manifests $(CURDIR)/dist/manifests

.PHONY: test
test: test-unit test-contract test-e2e ## Run the unit tests, the contract tests with Argo CD, then the end-to-end tests on the lab, without the slow ones

.PHONY: test-unit
test-unit: compiler redis ## Run the unit tests with the race detector, in random order
	go test -race -shuffle=on ./...
	go -C tools/proto test ./...
	go -C tools/release test ./...

FUZZTIME ?= 30s

# `go test` runs one fuzz target at a time.
.PHONY: fuzz
fuzz: redis ## Run each fuzz target for a while: FUZZTIME, 30s
	@grep -ro --include=*_test.go '^func Fuzz[A-Za-z0-9]*' . | sed 's|/[^/]*:func | |' | sort | while read -r package target; do \
		echo "fuzz $$package $$target"; \
		go -C $$package test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1x . </dev/null || exit 1; \
	done

# The race detector needs a C compiler, the one thing that Go does not bring along.
.PHONY: compiler
compiler:
	@command -v "$$(go env CC)" >/dev/null || $$(command -v sudo) apt-get install -y --no-install-recommends gcc libc6-dev

# What reads from Redis is tested with a real one.
.PHONY: redis
redis:
	@command -v redis-server >/dev/null || $$(command -v sudo) apt-get install -y --no-install-recommends redis-server

.PHONY: lint
lint: $(golangci) ## Lint every module that holds code
	@failed=; for module in $(code_modules); do \
		echo "lint $$module"; \
		(cd $$module && $(golangci) run --config $(CURDIR)/.golangci.yml ./...) || failed=yes; \
	done; test -z "$$failed"

$(golangci):
	@echo "building golangci-lint: minutes, and once per version"
	@mkdir -p $(@D)
	@CGO_ENABLED=0 go -C tools/lint build -trimpath -ldflags '-s -w' -o $@ \
		github.com/golangci/golangci-lint/v2/cmd/golangci-lint

.PHONY: generate
generate: ## Generate the protobuf code
	$(proto) $(proto_files)

.PHONY: verify
verify: ## Fail, naming what is stale, unless generated code and every go.mod and go.sum are current
	@stale=; \
	$(proto) -check $(proto_files) || stale=yes; \
	for module in $(all_modules); do \
		go -C $$module mod tidy -diff >/dev/null && continue; \
		echo "go.mod or go.sum is stale, run \`go mod tidy\` in $$module"; \
		stale=yes; \
	done; \
	test -z "$$stale"

.PHONY: clean
clean: ## Remove what the build put into the checkout; cached tools stay
	rm -rf bin dist

# tools, demo, test-e2e, e2e, bench
include e2e/e2e.mk
