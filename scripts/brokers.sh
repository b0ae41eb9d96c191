#!/usr/bin/env bash
# Makes sure that the servers which tests start for themselves are installed:
# redis-server, by apt-get or brew where that is allowed without a question. Says
# nothing where they are.
set -euo pipefail

if command -v redis-server >/dev/null; then
	exit 0
fi

as_root=()
if [ "$(id -u)" != 0 ]; then
	as_root=(sudo -n)
fi

if command -v brew >/dev/null; then
	brew install redis
elif command -v apt-get >/dev/null && { [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; }; then
	"${as_root[@]}" apt-get update -q
	"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends redis-server
	# The package was not there before, so a service of it was started just now, for
	# nobody: tests start servers of their own.
	"${as_root[@]}" service redis-server stop || true
else
	echo "brokers: redis-server 6.2 or later is missing and cannot be installed from here; please install it" >&2
	exit 1
fi
command -v redis-server >/dev/null || { echo "brokers: redis-server is still missing after the installation" >&2; exit 1; }
