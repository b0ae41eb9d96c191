#!/usr/bin/env bash
# Builds the command for each platform into .bin/release, with checksums. Go stamps the
# version of the checkout, its tag or commit, into each file; "eventbus version" prints it.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(git describe --tags --always --dirty)
out=.bin/release
rm -rf "$out"
mkdir -p "$out"
for platform in linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64; do
	os=${platform%/*} arch=${platform#*/}
	name="$out/eventbus-$version-$os-$arch"
	[ "$os" = windows ] && name+=.exe
	CGO_ENABLED=0 GOOS=$os GOARCH=$arch go build -trimpath -ldflags '-s -w' -o "$name" ./cmd/eventbus
done
(cd "$out" && sha256sum eventbus-* >SHA256SUMS && cat SHA256SUMS)
