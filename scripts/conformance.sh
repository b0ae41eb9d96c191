#!/usr/bin/env bash
# Runs the conformance suite of the given packages and reports law × backend on
# the terminal and in docs/CONFORMANCE.md, which becomes promise × backend in
# docs/promises.md. Fails if a law does.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/services.sh
results=$(mktemp)
log=$(mktemp)
trap 'rm -f "$results" "$log"' EXIT

failed=0
EVENTBUS_CONFORMANCE_OUT=$results EVENTBUS_REQUIRE_BROKERS=1 \
	go test -count=1 -p 1 -parallel 32 -run '^TestConformance' "$@" >"$log" 2>&1 || failed=1
# A table also where a law fails: it says which.
if ! go run ./internal/tools/conformancereport -out docs/CONFORMANCE.md "$results"; then
	failed=1
fi
go run ./internal/tools/promises || failed=1
if [ "$failed" != 0 ]; then
	cat "$log" >&2
fi
exit "$failed"
