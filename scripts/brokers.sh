#!/usr/bin/env bash
# Makes sure that the programs which tests start for themselves are installed:
# redis-server, Postgres, MariaDB and Chromium, by apt-get or brew where that is allowed
# without a question. Says nothing where they are.
set -euo pipefail

installed() { # SERVER
	case $1 in
	redis) command -v redis-server ;;
	postgres) ls /usr/lib/postgresql/*/bin/initdb || command -v initdb ;;
	mariadb) command -v mariadbd || command -v mysqld || ls /usr/sbin/mariadbd ;;
	chromium) command -v chromium || command -v chromium-browser || command -v google-chrome ;;
	esac >/dev/null 2>&1
}

missing=()
for server in redis postgres mariadb chromium; do
	installed $server || missing+=($server)
done
if [ ${#missing[@]} = 0 ]; then
	exit 0
fi

as_root=()
if [ "$(id -u)" != 0 ]; then
	as_root=(sudo -n)
fi

if command -v brew >/dev/null; then
	brew install "${missing[@]/postgres/postgresql}"
elif command -v apt-get >/dev/null && { [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; }; then
	"${as_root[@]}" apt-get update -q
	for server in "${missing[@]}"; do
		case $server in
		redis) package=redis-server service=redis-server ;;
		postgres) package=postgresql service=postgresql ;;
		mariadb) package=mariadb-server service=mariadb ;;
		chromium) package="chromium fonts-dejavu-core" service= ;;
		esac
		"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $package # one or more
		# The package was not there before, so a service of it was started just now, for
		# nobody: tests start servers of their own.
		[ -z "$service" ] || "${as_root[@]}" service $service stop || true
	done
else
	echo "brokers: ${missing[*]} missing (redis-server 6.2, Postgres 13, MariaDB 10.6, or later, and Chromium), and cannot be installed from here; please install it" >&2
	exit 1
fi
for server in "${missing[@]}"; do
	installed "$server" || { echo "brokers: $server is still missing after the installation" >&2; exit 1; }
done
