#!/usr/bin/env bash
# Runs the conformance tests of redisstream on the installed Redis and on other servers, and
# prints a table with a column for each server that could be had. It also writes
# .bin/versions.md, with the tests whose outcomes differ. No other target needs these servers.
#
#   Valkey 8.0   the package in Debian's backports, unpacked and not installed
#   Redis 8.0    built from the source in Debian's pool
#   others       built from .bin/src/redis-<version>.tar.gz, if it is there
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/services.sh
pool=http://deb.debian.org/debian/pool/main
servers=$PWD/.bin/servers
mkdir -p "$servers" .bin/src

# fetch FILE URL SHA256 downloads a file once.
fetch() {
	[ -f "$1" ] || curl -sSfL -m 120 -o "$1.part" "$2" || return 1
	[ ! -f "$1.part" ] || mv "$1.part" "$1"
	echo "$3  $1" | sha256sum -c --quiet
}

# build FILE NAME builds the server of a source.
build() {
	local at="$servers/$2"
	[ -x "$at/redis-server" ] && return
	rm -rf "$at.src" && mkdir -p "$at.src"
	tar -xf "$1" -C "$at.src" --strip-components 1
	make -C "$at.src" -j2 MALLOC=libc redis-server >"$at.log" 2>&1 || { echo "versions: $2 cannot be built, see $at.log" >&2; return 1; }
	mkdir -p "$at" && cp "$at.src/src/redis-server" "$at/" && rm -rf "$at.src"
}

# valkey has its server in valkey-tools; by its name it knows what it is to be.
valkey() {
	local at=$servers/valkey-8.0.1 deb=.bin/src/valkey-8.0.1.deb
	[ -x "$at/redis-server" ] && return
	fetch $deb "$pool/v/valkey/valkey-tools_8.0.1+dfsg1-1~bpo12+1_amd64.deb" \
		d2c2ea67642fa9571a07138b80ae52ebe566311c952aef25a39c1d5050697853 || return 1
	dpkg-deb -x $deb "$at.deb" && mkdir -p "$at" && cp "$at.deb/usr/bin/valkey-check-rdb" "$at/redis-server" && rm -rf "$at.deb"
}

valkey || echo "versions: no Valkey 8.0.1 here" >&2
fetch .bin/src/redis-8.0.2.tar.gz $pool/r/redis/redis_8.0.2.orig.tar.gz \
	caf3c0069f06fc84c5153bd2a348b204c578de80490c73857bee01d9b5d7401f || echo "versions: no source of Redis 8.0.2 here" >&2
for source in .bin/src/redis-*.tar.gz; do
	name=$(basename "$source" .tar.gz)
	[ -f "$source" ] && { build "$source" "$name" || true; }
done

results=$(mktemp)
trap 'rm -f "$results"' EXIT
failed=0
for server in "$(dirname "$(command -v redis-server)")" "$servers"/*/; do
	version=$("$server/redis-server" --version | sed -E 's/^([A-Za-z]+) server v=([0-9.]+).*/\L\1-\2/')
	echo "=== $version"
	PATH=$server:$PATH EVENTBUS_REDIS_NAME=$version EVENTBUS_CONFORMANCE_OUT=$results EVENTBUS_REQUIRE_BROKERS=1 \
		go test -count=1 -parallel 48 -run '^TestConformance$' ./redisstream || failed=1
done
go run ./internal/tools/conformancereport -by "make versions" -differing -out .bin/versions.md "$results" || failed=1
exit "$failed"
