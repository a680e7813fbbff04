# make help lists the targets. Tools are pinned in .ci/tools, apart from the product's own modules.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Tools need no C compiler; sqlc brings PostgreSQL's parser as WebAssembly when there is none.
TOOL := CGO_ENABLED=0 go tool -modfile=.ci/tools/go.mod

# The packages worth the race detector's tenfold cost: everything that runs concurrently in one process. The
# black box runs the binary as separate processes, archtest and config are not concurrent, wire and client are
# generated.
#
# Tests in a synctest bubble run on one processor: the runtime hands one race context to every thread that
# fires one of a bubble's timers, and the detector crashes where two do so at once (golang/go issue 78156).
# Races are still found, since the detector compares happens-before order and needs no real parallelism.
RACE = go list -f '{{.ImportPath}} {{.TestImports}} {{.XTestImports}}' ./api ./cmd/... ./db/... ./internal/... \
	| grep -Ev '/(blackbox|archtest|config)(/| )'

.PHONY: help build quick test race lint alerts contract generate generate-check bench bench-admin simulate modelcheck \
	crashes mutants clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The Dockerfile holds the same line; .ci/run compares the two.
build: ## the static binary, as bin/sendonce
	CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o bin/sendonce ./cmd/sendonce

quick: ## within a minute, while writing: vet, the architecture rules, every test but the black box, few seeds
	go vet ./...
	go test -vet=off -short $$(go list ./... | grep -v '/internal/blackbox')

# Two lanes side by side: the simulation, the model checker and the delivery storms, which compute, and the other
# tests, most of the black box among them, which mostly wait for processes.
test: ## everything but the race detector: vet, the architecture rules, all tests; installs what they need
	.ci/install
	go vet ./...
	go vet -tags crashpoints ./internal/app ./cmd/...
	go test ./internal/archtest
	@trap 'trap - INT TERM; kill 0' INT TERM; set -x; \
	{ computed=0; \
	  go test -vet=off -timeout 40m ./internal/simulation/... || computed=1; \
	  go test -vet=off -timeout 40m -run '^TestStorm' ./internal/blackbox || computed=1; \
	  exit $$computed; } & computing=$$!; \
	failed=0; \
	go test -vet=off -timeout 20m $$(go list ./... | grep -Ev '/internal/(simulation|blackbox$$)') || failed=1; \
	go test -vet=off -timeout 40m -skip '^TestStorm' ./internal/blackbox || failed=1; \
	wait $$computing || failed=1; \
	exit $$failed

race: ## the tests of what runs concurrently, under the race detector (needs a C compiler)
	go test -race -timeout 20m $$($(RACE) | grep -v testing/synctest | cut -d ' ' -f 1)
	go test -race -timeout 20m -cpu 1 $$($(RACE) | grep testing/synctest | cut -d ' ' -f 1)

lint: ## formatting and staticcheck
	@unformatted="$$($(TOOL) gofumpt -l .)"; \
	if [ -n "$$unformatted" ]; then echo "not gofumpt's format:"; echo "$$unformatted"; exit 1; fi
	$(TOOL) staticcheck ./...

alerts: ## check the alert rules and their tests (needs promtool)
	promtool check rules deploy/alerts.yaml
	promtool test rules deploy/alerts_test.yaml

contract: ## lint openapi.yaml and use clients generated from it; installs what it needs
	.ci/contract/check

generate: ## run sqlc and oapi-codegen
	$(TOOL) sqlc generate
	CGO_ENABLED=0 go generate ./...

# In a copy, so that it is right about a tree with uncommitted changes, and changes nothing.
generate-check: ## fail where generated code is not what its sources give
	@dir="$$(mktemp -d)"; trap 'rm -rf "$$dir"' EXIT; mkdir "$$dir/tree"; \
	git ls-files -z --cached --others --exclude-standard \
	  | while IFS= read -r -d '' f; do if [ -e "$$f" ]; then printf '%s\0' "$$f"; fi; done \
	  | tar -c --null -T - | tar -x -C "$$dir/tree"; \
	cp -r "$$dir/tree/api" "$$dir/tree/db" "$$dir"; \
	$(MAKE) --no-print-directory -C "$$dir/tree" generate; \
	diff -r "$$dir/api" "$$dir/tree/api"; diff -r "$$dir/db" "$$dir/tree/db"; \
	echo "generated code is up to date"

bench: ## measure throughput and latency
	.ci/bench

ENTRIES ?= 1000000

bench-admin: ## measure admin lookups in a ledger of ENTRIES, and deliveries beside a purge and a redrive
	.ci/bench -entries $(ENTRIES)

# The long proofs. docs/proof.md says what each shows, and the figures of the last run.
FIRST ?= 0
SEEDS ?= 1000000

simulate: ## run SEEDS seeds of the simulation, from FIRST on (a million)
	go test ./internal/simulation -run TestSimulation_NothingSentTwiceOrLost -timeout 0 -v -simulation.first=$(FIRST) -simulation.seeds=$(SEEDS)

modelcheck: ## explore every small model to its last state
	go test ./internal/simulation/modelcheck -timeout 30m -v -modelcheck.all

crashes: ## kill and stop the built binary at every point, cut a thousand commits, restart under load
	go test ./internal/blackbox -run 'KilledAnywhere|StoppedAnywhere|WrongClock' -timeout 60m -v -whole
	go test ./internal/blackbox -run TestCommit_LostReply -timeout 30m -v -commit.cuts 1000
	go test ./internal/blackbox -run TestB27 -timeout 30m -v -rollout.rounds 5

mutants: ## take out each guard in a table of planted bugs, and see the named test fail
	go run ./internal/simulation/mutants

clean: ## remove what builds leave behind
	rm -rf bin
	find . -name '*.test' -not -path './.git/*' -delete
