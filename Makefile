# make help lists what there is. Tools are pinned in .ci/tools, apart from the product's own modules.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Tools need no C compiler; sqlc brings PostgreSQL's parser as WebAssembly when there is none.
TOOL := CGO_ENABLED=0 go tool -modfile=.ci/tools/go.mod

# What is worth the race detector's tenfold time: all that runs concurrently in one process. The black
# box runs the binary as processes, house and config run alone, wire and client are generated.
#
# Tests in a synctest bubble run on one processor: the runtime hands one race context to every thread that
# fires one of a bubble's timers, and the detector crashes where two do at once (golang/go issue 78156).
# It still sees their races, since it judges by what happened before what and not by what happened together.
RACE = go list -f '{{.ImportPath}} {{.TestImports}} {{.XTestImports}}' ./api ./cmd/... ./db/... ./internal/... \
	| grep -Ev '/(blackbox|house|config)(/| )'

.PHONY: help build test race lint alerts generate generate-check bench simulate worlds crashes planted bench-desk clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The same line stands in the Dockerfile; .ci/run compares them.
build: ## the static binary, as bin/sendonce
	CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o bin/sendonce ./cmd/sendonce

# The black box comes last and alone: its gateways, providers and databases are processes with deadlines of
# seconds, and what else is tested beside them would take their processors.
test: ## vet, the rules of the house, and every test; installs what they need where it may
	.ci/install
	go vet ./...
	go vet -tags crashpoints ./internal/app ./cmd/...
	go test ./internal/house
	go test -timeout 20m $$(go list ./... | grep -v '/internal/blackbox$$')
	go test -timeout 20m ./internal/blackbox

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

generate: ## write what sqlc and oapi-codegen write
	$(TOOL) sqlc generate
	CGO_ENABLED=0 go generate ./...

# In a copy, so that it tells the truth about a tree with changes in it, and changes nothing.
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

bench-desk: ## measure lookups in a ledger of ENTRIES, and deliveries beside a purge and a redrive
	.ci/bench -entries $(ENTRIES)

# The long proofs; docs/proof.md tells what they show, and the figures of the last runs.
FIRST ?= 0
SEEDS ?= 1000000

simulate: ## run SEEDS seeds of the simulation, from FIRST on (a million)
	go test ./internal/simulation -run TestWhatever -timeout 0 -v -simulation.first=$(FIRST) -simulation.seeds=$(SEEDS)

worlds: ## explore every small world to its last state
	go test ./internal/simulation/worlds -timeout 30m -v -worlds.all

crashes: ## kill and stop the built binary at every point, cut a thousand commits, restart under load
	go test ./internal/blackbox -run 'KilledAnywhere|StoppedAnywhere|WrongClock' -timeout 60m -v -whole
	go test ./internal/blackbox -run TestACommitWhoseReplyIsLost -timeout 30m -v -commit.cuts 1000
	go test ./internal/blackbox -run TestB27 -timeout 30m -v -rollout.rounds 5

planted: ## take out each guard of a table, and see the named test fail
	go run ./internal/simulation/planted

clean: ## remove what builds leave behind
	rm -rf bin
	find . -name '*.test' -not -path './.git/*' -delete
