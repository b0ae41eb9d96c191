#!/usr/bin/env bash
# Runs each fuzz target of the module for the given time, two at a time.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-30s}

# go test -list prints the names of a package, then "ok <package> <time>".
list=$(go test -list '^Fuzz' ./...)
targets=$(awk '/^Fuzz/ { names[++n] = $1 } /^(ok|\?)/ { for (i = 1; i <= n; i++) print $2, names[i]; n = 0 }' <<<"$list")
if [ -z "$targets" ]; then
	echo "fuzz: no targets found" >&2
	exit 1
fi

# Without a bound, a worker may minimize one input for as long as the target has.
fuzz() {
	go test -run '^$' -parallel 1 -fuzz "^$2\$" -fuzztime "$time" -fuzzminimizetime 10x "$1" </dev/null >>"$3" 2>&1
}

# Before Go 1.27 the end of the time itself may be told as a failure (go.dev/issue/75804). It has
# no failing input. The target must then pass a second time.
target() {
	local log=$logs/${1//\//_}.$2
	echo "== $1 $2, $time" >"$log"
	if fuzz "$1" "$2" "$log"; then
		return
	fi
	if ! grep -q '^ *context deadline exceeded$' "$log" || grep -q 'Failing input written' "$log"; then
		return 1
	fi
	fuzz "$1" "$2" "$log"
}

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
export -f fuzz target
export time logs
failed=0
xargs -P 2 -L 1 bash -c 'target "$1" "$2"' target <<<"$targets" || failed=1
cat "$logs"/*
exit "$failed"
