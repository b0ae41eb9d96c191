# `make` lists what there is. CI (.ci/run) calls the same targets.

BACKENDS  = ./inmemory ./bolt ./redisstream ./nats
COLUMNS   = bolt,inmemory,nats,nats-cluster,nats-failover,nats-lent,nats-stream,redis,redis-cluster
RESULTS   = $(CURDIR)/.bin/conformance.results
ALONE     = /redisstream$$\|/nats$$\|/conformance$$
FUZZTIME ?= 30s
SOAK     ?= 1000000
DAYS     ?= 10
SCHEDULED ?= 20000
# Tests skip a service that is missing, unless CI demands them all.
REQUIRE   = $(if $(filter true,$(CI)),EVENTBUS_REQUIRE_BROKERS=1)
LINT      = .bin/golangci-lint
NATS      = .bin/nats-server

.DEFAULT_GOAL := help
.PHONY: bench-console help build release portable test lint fmt fuzz conformance conformance-report versions conformance-faults mutate soak wire allocs bench bench-quick bench-curves bench-backlog bench-plot bench-failing bench-doc bench-packages bench-test demo demo-kill demo-schedule demo-instances demo-groups outbox-kill bench-outbox cover services nightly clean bench-scaling console-shots

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## compile every package, its tests and the command (.bin/eventbus)
	go build ./...
	go vet ./...
	go build -o .bin/ ./cmd/eventbus

release: ## build the command for linux, darwin and windows (.bin/release)
	scripts/release.sh

portable: ## vet all packages for windows and darwin
	GOOS=windows go vet ./...
	GOOS=darwin go vet ./...

test: services ## run every test with the race detector, in random order, on real servers that it starts; keeps the conformance results for conformance-report
	rm -f $(RESULTS)
	go test -run '^TestLives$$' ./internal/ledger # it has no goroutines, so the race detector only makes it slow
	EVENTBUS_CONFORMANCE_OUT=$(RESULTS) EVENTBUS_LEDGER_LIVES=200 $(REQUIRE) go test -race -shuffle=on -p 2 -parallel 16 -timeout 30m $$(go list ./... | grep -v '$(ALONE)')
	EVENTBUS_CONFORMANCE_OUT=$(RESULTS) $(REQUIRE) go test -race -shuffle=on -p 1 -parallel 24 -timeout 30m -skip '^TestFaults$$' $$(go list ./... | grep '$(ALONE)') # make conformance-faults runs it
	cd examples/cloudevents && $(REQUIRE) go test -race -shuffle=on -parallel 16 ./...
	cd examples/observability && $(REQUIRE) go test -race -shuffle=on ./...
	cd outbox && $(REQUIRE) go test -race -shuffle=on -parallel 16 ./...
	cd console/browser && $(REQUIRE) go test -shuffle=on -parallel 6 ./... # the race detector sees the console in its own tests
	@scripts/services.sh --missing

lint: $(LINT) ## run the linters of .golangci.yml; go.mod must be tidy
	$(LINT) run ./...
	go mod tidy -diff
	cd examples/cloudevents && ../../$(LINT) run ./... && go mod tidy -diff
	cd examples/observability && ../../$(LINT) run ./... && go mod tidy -diff
	cd outbox && ../$(LINT) run ./... && go mod tidy -diff
	cd console/browser && ../../$(LINT) run ./... && go mod tidy -diff

fmt: $(LINT) ## format the code
	$(LINT) fmt ./...

fuzz: ## run each fuzz target for FUZZTIME (30s)
	scripts/fuzz.sh $(FUZZTIME)

conformance: services ## run the conformance tests alone on each of BACKENDS, without the race detector; then conformance-report
	scripts/conformance.sh $(RESULTS) $(BACKENDS)

conformance-report: ## write docs/CONFORMANCE.md and the table of docs/promises.md from the last run of test or conformance
	go run ./internal/tools/conformancereport -backends $(COLUMNS) -out docs/CONFORMANCE.md $(RESULTS)
	go run ./internal/tools/promises

versions: services ## compare Redis 7, Redis 8 and Valkey 8, where they can be had, by the conformance tests of redisstream
	scripts/versions.sh

conformance-faults: ## prove the conformance tests: each must fail on a backend or a bus with one of its faults; half a minute
	scripts/one.sh TestFaults ./conformance

mutate: ## change inmemory in small ways, one at a time, for MUTATE (30m), and list the changes that no conformance test notices
	go run ./internal/tools/mutate -budget $(or $(MUTATE),30m) ./inmemory

soak: ## send SOAK (1000000) events through one subscription; heap and goroutines must stay flat
	EVENTBUS_SOAK=$(SOAK) scripts/one.sh TestSoak ./internal/testing/bus -timeout 30m

wire: services ## count what is said to the broker for each 1,000 events; it must stay little
	EVENTBUS_WIRE=1 EVENTBUS_REQUIRE_BROKERS=1 go test -count=1 -run '^TestWire' -v ./redisstream
	EVENTBUS_ALONE=1 EVENTBUS_REQUIRE_BROKERS=1 go test -count=1 -parallel 1 -run '^(TestHugePendingListsHoldUpNobody|TestScriptsAreShort|TestDelaysEndPromptly)$$' -v ./redisstream

allocs: ## count what is allocated for each event; it must stay little
	go test -count=1 -run 'Alloc' -v ./internal/testing/bus ./inmemory ./redisstream ./nats ./internal/slab ./observer/telemetry ./results

bench: $(NATS) ## the bus beside raw clients and peers, about 10 minutes: tables, benchmarks/results.json
	cd benchmarks && go run . -json results.json

bench-quick: $(NATS) ## the same in under a minute
	cd benchmarks && go run . -quick -json results.json

bench-curves: $(NATS) ## how cost grows with handlers, payload, topics, backlog; about 10 minutes: tables, benchmarks/results.curves.json
	cd benchmarks && go run . -curves -json results.curves.json

bench-backlog: ## a backlog of 10,000,000 events on Redis; takes 5 GB of memory
	cd benchmarks && go run . -curves -cells backlog/10000000 -runs 1

bench-plot: ## draw the last results of bench and bench-curves, and write their tables into docs/PERFORMANCE.md
	cd benchmarks && go run . -from results.json -svg ../docs/benchmarks.svg -doc ../docs/PERFORMANCE.md
	cd benchmarks && go run . -curves -from results.curves.json -svg ../docs/curves.svg -doc ../docs/PERFORMANCE.md

bench-failing: ## what failing events cost the others, on the broker URL (mem:)
	cd benchmarks && go run ./failing -url $(or $(URL),mem:)

bench-doc: bench bench-curves bench-plot ## all of docs/PERFORMANCE.md that is measured, anew

bench-scaling: services ## package scale follows a backlog of 50,000 events from 1 handler to 16 and back, on Redis and NATS; two minutes; draws docs/scaling.svg
	cd benchmarks && go run ./scaling -svg ../docs/scaling.svg

bench-console: ## what ten browsers on the console cost a Redis with 100 topics, 300 groups and a million events; two minutes
	cd benchmarks && go run ./console

bench-outbox: services ## the relay of the outbox beside Watermill's forwarder, from Postgres to Redis
	cd benchmarks && go run ./outbox

bench-packages: services ## the benchmarks of single packages
	go test -run '^$$' -bench . -benchmem ./...

bench-test: services ## test the benchmarks module: every target passes every cell
	cd benchmarks && go vet ./... && go mod tidy -diff
	cd benchmarks && $(REQUIRE) go test -count=1 ./...

demo: ## run the shop demo in memory
	go run ./cmd/eventbus demo

demo-kill: services ## the demo while its server is killed three times; BROKER=redis is one kind, URL=… a server that you kill; DAYS (10)
	@EVENTBUS_DEMO_DAYS=$(DAYS) EVENTBUS_DEMO_BROKER=$(BROKER) EVENTBUS_DEMO_URL='$(URL)' EVENTBUS_REQUIRE_BROKERS=1 \
		scripts/one.sh TestDemoKill ./cmd/eventbus -timeout 10m

outbox-kill: services ## 50,000 transactions, while relays of the outbox are killed and frozen, on each database; TRANSACTIONS sets the number
	@cd outbox && EVENTBUS_OUTBOX_KILL=$(or $(TRANSACTIONS),50000) EVENTBUS_REQUIRE_BROKERS=1 \
		go test -count=1 -timeout 30m -parallel 1 -run '^TestKill$$' -v . | grep -E '^(---|FAIL|ok)|kill_test|Error'

demo-schedule: services ## SCHEDULED (20000) events in the coming minute and 100 recurring entries, while processes are killed: none early, lost or twice
	@EVENTBUS_SCHEDULE_EVENTS=$(SCHEDULED) EVENTBUS_REQUIRE_BROKERS=1 scripts/one.sh TestDemoSchedule ./cmd/eventbus -timeout 10m

demo-instances: services ## INSTANCES (50) that each get every event come and go for DEMO_SECONDS (600), a third killed: none misses an event, nothing is left
	@EVENTBUS_INSTANCES=$(or $(INSTANCES),50) EVENTBUS_INSTANCES_SECONDS=$(or $(DEMO_SECONDS),600) EVENTBUS_REQUIRE_BROKERS=1 scripts/one.sh TestDemoInstances ./cmd/eventbus -timeout 40m

demo-groups: services ## EVENTS (100000) events in 16 partitions of three processes, also on clusters: one is killed, one frozen, two are added; the order of every key holds
	@EVENTBUS_GROUP_EVENTS=$(or $(EVENTS),100000) EVENTBUS_REQUIRE_BROKERS=1 scripts/one.sh TestDemoGroups ./cmd/eventbus -timeout 20m

cover: ## measure what the tests reach; coverage.out
	go test -coverpkg=./... -coverprofile=coverage.out ./...
	go tool cover -func=coverage.out | tail -1

console-shots: services ## draw the pictures of the console in docs, from a shop on Redis; four minutes
	cd console/browser && EVENTBUS_CONSOLE_SHOTS=$(CURDIR)/docs EVENTBUS_REQUIRE_BROKERS=1 go test -count=1 -run '^TestShots$$' -v .

services: ## install the servers that tests start, and Chromium, where they are missing; says which, and which tests are skipped without
	@scripts/services.sh

nightly: services ## what CI does in a short version, at full size: faults, fuzzing, kills, mutants; hours
	scripts/nightly.sh

clean: ## remove what these targets have built
	rm -rf .bin coverage.out

$(NATS): tools/go.mod tools/go.sum
	go build -C tools -o ../$@ github.com/nats-io/nats-server/v2
	@touch $@

$(LINT): tools/go.mod tools/go.sum
	go build -C tools -o ../$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@touch $@
