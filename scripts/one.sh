#!/usr/bin/env bash
# Runs one test, verbosely: one.sh NAME PACKAGE [FLAG…]. Fails if there is none
# of that name, with which go test would be content.
set -euo pipefail
cd "$(dirname "$0")/.."
name=$1 package=$2
shift 2
found=$(go test -list "^$name\$" "$package")
if ! grep -qx "$name" <<<"$found"; then
	echo "no test $name in $package" >&2
	exit 1
fi
exec go test -count=1 -run "^$name\$" -v "$@" "$package"
