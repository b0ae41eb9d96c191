#!/usr/bin/env bash
# Runs each fuzz target of the module for the given time.
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
while read -r package name; do
	echo "== $package $name, $time"
	go test -run '^$' -fuzz "^$name\$" -fuzztime "$time" "$package" </dev/null
done <<<"$targets"
