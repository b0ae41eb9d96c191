#!/usr/bin/env bash
# services.sh installs the programs that tests start for themselves, where they are missing:
# nats-server and axe-core are built into .bin, and redis-server, PostgreSQL, MariaDB and Chromium
# come from apt-get or brew. It says what it is about to install before it does, and never stops
# at the first failure, because the tests of the other services are still worth running: a service
# that cannot be had is reported with the step that failed, and its tests are skipped. With CI=true
# a missing service is an error instead, so that CI never passes on skipped tests.
#
# services.sh --missing only lists what is missing.
set -uo pipefail
cd "$(dirname "$0")/.."

services=(nats axe redis postgres mariadb chromium)

needs() { # SERVICE
	case $1 in
	nats) echo "nats-server, built from tools/go.mod" ;;
	axe) echo "axe-core, from npm" ;;
	redis) echo "redis-server 6.2 or later" ;;
	postgres) echo "PostgreSQL 13 or later" ;;
	mariadb) echo "MariaDB 10.6 or later" ;;
	chromium) echo "Chromium" ;;
	esac
}

tests() { # SERVICE
	case $1 in
	nats) echo "the NATS backend" ;;
	axe) echo "accessibility of the console" ;;
	redis) echo "the Redis backend" ;;
	postgres | mariadb) echo "the outbox on $1" ;;
	chromium) echo "the console in a browser" ;;
	esac
}

installed() { # SERVICE
	case $1 in
	nats) [ .bin/nats-server -nt tools/go.mod ] && [ .bin/nats-server -nt tools/go.sum ] ;;
	axe) [ .bin/axe.min.js -nt scripts/axe.sh ] ;;
	redis) command -v redis-server ;;
	postgres) ls /usr/lib/postgresql/*/bin/initdb || command -v initdb ;;
	mariadb) command -v mariadbd || command -v mysqld || ls /usr/sbin/mariadbd ;;
	chromium) command -v chromium || command -v chromium-browser || command -v google-chrome ;;
	esac >/dev/null 2>&1
}

missing() {
	local s
	for s in "${services[@]}"; do
		installed "$s" || echo "$s"
	done
}

if [ "${1:-}" = --missing ]; then
	for s in $(missing); do
		echo "services: skipped the tests of $(tests "$s"), because $(needs "$s") is missing: run make services"
	done
	exit 0
fi

wanted=($(missing))
[ ${#wanted[@]} != 0 ] || exit 0

as_root=()
[ "$(id -u)" = 0 ] || as_root=(sudo -n)
if command -v brew >/dev/null; then
	packager=brew
elif command -v apt-get >/dev/null && { [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; }; then
	packager=apt-get
else
	packager=
fi

echo "services: tests start these programs for themselves. Missing here, and about to be installed:"
for s in "${wanted[@]}"; do
	case $s in
	nats | axe) echo "  $(needs "$s"), into .bin" ;;
	*) echo "  $(needs "$s")${packager:+, with ${as_root:+sudo }$packager}" ;;
	esac
done

apt() { # PACKAGE...
	[ -n "${updated:-}" ] || "${as_root[@]}" apt-get update -q || return
	updated=yes
	"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@"
}

# quiet stops the service that a package has just started for nobody: tests start their own servers.
quiet() { # SERVICE
	"${as_root[@]}" service "$1" stop || true
}

install() { # SERVICE
	case $1/$packager in
	nats/*) go build -C tools -o ../.bin/nats-server github.com/nats-io/nats-server/v2 && touch .bin/nats-server ;;
	axe/*) scripts/axe.sh .bin/axe.min.js ;;
	postgres/brew) brew install postgresql ;;
	*/brew) brew install "$1" ;;
	redis/apt-get) apt redis-server && quiet redis-server ;;
	postgres/apt-get) apt postgresql && quiet postgresql ;;
	mariadb/apt-get) apt mariadb-server && quiet mariadb ;;
	chromium/apt-get) apt chromium fonts-dejavu-core ;;
	*) echo "no apt-get or brew may be run here" && return 1 ;;
	esac
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0
for s in "${wanted[@]}"; do
	install "$s" >"$log" 2>&1
	installed "$s" && continue
	failed=1
	{
		echo "services: $(needs "$s") could not be installed. The last lines of the attempt:"
		tail -n 5 "$log" | sed 's/^/    /'
		echo "  Fix that and run make services, or install it yourself. Until then the tests of $(tests "$s") are skipped."
	} >&2
done
if [ "$failed" = 1 ] && [ "${CI:-}" = true ]; then
	echo "services: CI=true demands all of them" >&2
	exit 1
fi
exit 0
