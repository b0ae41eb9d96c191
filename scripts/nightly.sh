#!/usr/bin/env bash
# nightly.sh runs at full size what CI only samples. It goes on after a failure, lists the steps
# that failed at its end, and fails if there is one.
set -uo pipefail
cd "$(dirname "$0")/.."

failed=()
step() {
	echo
	echo "=== $*  [$((SECONDS / 60))m$((SECONDS % 60))s]"
	"$@" || failed+=("$*")
}

step make conformance
step env EVENTBUS_LEDGER_LIVES=200000 go test -count=1 -timeout 60m -run '^TestLives$' ./internal/ledger
step env EVENTBUS_NIGHTLY=1 go test -count=1 ./internal/engine ./internal/publish
step make conformance-faults
step make mutate
step make fuzz FUZZTIME=2m
step make soak
step make demo-kill
step make demo-schedule
step make demo-groups
step make demo-instances
step make outbox-kill
step make versions
[ ${#failed[@]} = 0 ] || { printf '=== failed: %s\n' "${failed[@]}"; exit 1; }
