#!/bin/sh
# Loads each defconfig of this tree into Buildroot and reports dropped lines.
# Buildroot drops an option without a message if it no longer exists or if its
# dependencies are not met. The script also reports missing files, and required
# packages that are not selected.
#
# usage: BUILDROOT=path/to/buildroot ./check-defconfigs.sh [NAME_defconfig...]
set -eu

here=$(cd "$(dirname "$0")" && pwd)
: "${BUILDROOT:?set it to the path of a Buildroot checkout}"
out=$(mktemp -d)

REQUIRED="TINYLET TINYLET_PAUSE TINYLET_CONTAINERD CRUN LIBSECCOMP"
trap 'rm -rf "$out"' EXIT

# Prints the lines of defconfig $1 that configuration $2 does not contain.
dropped_lines() {
	grep -vxFf "$2" "$1" || true
}

# Prints the files of this tree that defconfig $1 names and that do not exist.
# The values of options contain the variable, which must not be expanded here.
# shellcheck disable=SC2016
missing_files() {
	grep -o '\$(BR2_EXTERNAL_TINYLET_PATH)[^" ]*' "$1" |
		sed 's|^\$(BR2_EXTERNAL_TINYLET_PATH)/||' |
		while read -r path; do
			[ -e "$here/$path" ] || echo "$path"
		done
}

# Prints the required packages that configuration $1 does not select.
missing_packages() {
	for p in $REQUIRED; do
		grep -qx "BR2_PACKAGE_$p=y" "$1" || echo "$p"
	done
}

check() {
	name=$1
	make -s -C "$BUILDROOT" BR2_EXTERNAL="$here" O="$out/$name" "$name" \
		> "$out/log" 2>&1 || { cat "$out/log"; return 1; }
	dropped=$(dropped_lines "$here/configs/$name" "$out/$name/.config")
	missing=$(missing_files "$here/configs/$name")
	packages=$(missing_packages "$out/$name/.config")
	[ -z "$dropped" ] || printf '%s: dropped:\n%s\n' "$name" "$dropped"
	[ -z "$missing" ] || printf '%s: no such file:\n%s\n' "$name" "$missing"
	[ -z "$packages" ] || printf '%s: not selected:\n%s\n' "$name" "$packages"
	[ -z "$dropped$missing$packages" ] || return 1
	echo "$name: ok"
}

cd "$here/configs"
[ $# -gt 0 ] || set -- *_defconfig
failed=0
for name in "$@"; do
	check "$name" || failed=1
done
exit "$failed"
