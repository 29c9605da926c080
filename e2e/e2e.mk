# The lab's targets: real Kubernetes, Argo CD and Redis on this machine. Included by the Makefile at the top.
# Programs are built and then become the recipe's process (exec), so that a signal to make reaches them: `go run` would
# die of a SIGTERM and leave its program behind.

.PHONY: tools tools-slow demo demo-cluster test-contract test-e2e e2e bench table-of-lies

tools: ## Build the real programs that the lab runs (once; some 15 minutes the first time)
	cd e2e && go run ./cmd/tools

tools-slow: ## Build what only the slow tests run, too; `make e2e` begins with it
	cd e2e && go run ./cmd/tools -slow

demo: tools ## Run a hub and two spokes with Applications on them, until Ctrl-C
	cd e2e && go build -o ../bin/demo ./cmd/demo && exec ../bin/demo

demo-cluster: tools ## Install hub and spoke by the charts on real nodes, as root, until Ctrl-C
	cd e2e && go build -o ../bin/demo-cluster ./cmd/demo-cluster && exec ../bin/demo-cluster

# The flags are those that the lab's programs are built with, so that Argo CD is compiled once for both.
argocd_flags := CGO_ENABLED=0 GOFLAGS='-trimpath -buildvcs=false'

test-contract: redis ## Compare what we do as in Argo CD with Argo CD's own functions
	cd e2e/contract && $(argocd_flags) go test -count=1 ./...

# Like go test, and it says at the end what was skipped and why.
tests := go build -o ../bin/tests ./cmd/tests && exec ../bin/tests

test-e2e: tools ## Run the end-to-end tests, without the slow ones
	cd e2e && $(tests) -race -count=1 -timeout 40m -short ./...

e2e: tools-slow fuzz ## Run all end-to-end tests, the slow ones too, and all fuzz targets; say what was skipped and why
	cd e2e && $(tests) -race -count=1 -timeout 60m ./...

table-of-lies: ## Write the table in docs/security.md from the tests in e2e/hostile
	cd e2e && go test -count=1 ./hostile -run TestTableIsThatOfTheDocs -update

bench: tools ## Measure beside a floor, a plain client that does the same work; flags as ARGS='--only propagate' or ARGS=--help
	cd e2e && go build -o ../bin/bench ./cmd/bench && exec ../bin/bench $(ARGS)
