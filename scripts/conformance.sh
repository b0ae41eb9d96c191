#!/usr/bin/env bash
# conformance.sh RESULTS PACKAGE...: runs the conformance tests of the packages and reports
# them. It fails if a test does. Then it prints, for each backend, the account of the suite,
# which names the tests that failed, and the failures themselves.
set -euo pipefail
cd "$(dirname "$0")/.."
results=$1
shift
log=$(mktemp)
trap 'rm -f "$log"' EXIT
rm -f "$results"

failed=0
EVENTBUS_CONFORMANCE_OUT=$results EVENTBUS_REQUIRE_BROKERS=1 \
	go test -count=1 -p 1 -parallel 32 -timeout 30m -run '^TestConformance' "$@" >"$log" 2>&1 || failed=1
if [ "$failed" != 0 ]; then
	cat "$log" >&2
fi
# A page even if a test failed, because it says which.
make --no-print-directory conformance-report || failed=1
exit "$failed"
