#!/bin/sh
# Loads each defconfig of this tree into Buildroot and says which of its lines
# did not survive: an option that does not exist any more, or whose
# dependencies are not met, is otherwise dropped in silence.
#
# It also says which package a node cannot do without is not selected.
#
# usage: BUILDROOT=path/to/buildroot ./check-defconfigs.sh [NAME_defconfig...]
set -eu

here=$(cd "$(dirname "$0")" && pwd)
: "${BUILDROOT:?set it to a checkout of Buildroot}"
out=$(mktemp -d)

NEEDED="TINYLET TINYLET_PAUSE CONTAINERD CONTAINERD_CRI CRUN LIBSECCOMP"
trap 'rm -rf "$out"' EXIT

# Prints the lines of defconfig $1 that configuration $2 does not hold.
dropped_lines() {
	grep -vxFf "$2" "$1" || true
}

# Prints each file that defconfig $1 names in this tree and that is not there.
# The option's value names the variable, which is not to be expanded here.
# shellcheck disable=SC2016
missing_files() {
	grep -o '\$(BR2_EXTERNAL_TINYLET_PATH)[^" ]*' "$1" |
		sed 's|^\$(BR2_EXTERNAL_TINYLET_PATH)/||' |
		while read -r path; do
			[ -e "$here/$path" ] || echo "$path"
		done
}

# Prints each needed package that configuration $1 does not select.
missing_packages() {
	for p in $NEEDED; do
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
