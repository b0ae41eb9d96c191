#!/usr/bin/env bash
# axe.sh FILE writes axe-core, which looks for obstacles to people in a page, from its package
# at npm. It needs the command npm. The checksum is of the package.
set -euo pipefail
version=4.14.1
sum=1477dafa598d8d065f273d6af302aa203c02e83131707b7fa648cd41bd3d6b734f8c22a0dab86ee6a6f64b8afbe804b214d36db85a2826965edfb3a0b9d546b5

file=$(realpath -m "$1")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm pack --silent "axe-core@$version" >/dev/null
echo "$sum  axe-core-$version.tgz" | sha512sum --check --quiet
tar xzf "axe-core-$version.tgz" package/axe.min.js
mkdir -p "$(dirname "$file")"
mv package/axe.min.js "$file"
touch "$file"
