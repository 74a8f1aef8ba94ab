#!/bin/sh
# Installs tinylet @VERSION@. It verifies the release with the key in this file before it
# installs anything: the signature of the list of checksums, then the checksum of the
# file to install.
set -eu

VERSION="@VERSION@"
FROM="https://github.com/tinylet/tinylet/releases/download/v$VERSION"
KEY="@KEY@"

usage() {
	cat <<END
usage: install.sh [--dry-run] [--binary] [--from DIRECTORY|URL]

Downloads, verifies and installs tinylet $VERSION: the Debian package, or the binary
where there is no dpkg.

  --dry-run   verify, and show what would be installed
  --binary    install only /usr/bin/tinylet, also on Debian
  --from      directory or https URL of the release (default: $FROM)

examples:
  sudo sh install.sh
  sh install.sh --dry-run --from /media/usb/tinylet-$VERSION
END
}

fail() {
	echo "install.sh: $*" >&2
	exit 1
}

need() {
	command -v "$1" >/dev/null || fail "$1 is missing; on Debian: apt-get install $2"
}

# package_architecture prints Debian's name of the architecture.
package_architecture() {
	if command -v dpkg >/dev/null; then
		dpkg --print-architecture
		return
	fi
	case "$(uname -m)" in
		aarch64) echo arm64;;
		armv7*|armv8*) echo armhf;;
		x86_64) echo amd64;;
		*) uname -m;;
	esac
}

# file_name prints the name of the file to install.
file_name() {
	architecture=$(package_architecture)
	case "$architecture" in
		arm64|amd64) binary=$architecture;;
		armhf)
			case "$(uname -m)" in
				armv4*|armv5*|armv6*) fail "this board has an ARMv6 processor ($(uname -m)); tinylet needs ARMv7 or later";;
			esac
			binary=armv7;;
		*) fail "there is no tinylet for $architecture; there is one for arm64, armhf (ARMv7) and amd64";;
	esac
	if [ -z "$only_binary" ] && command -v dpkg >/dev/null; then
		echo "tinylet_@DEBIAN_VERSION@_$architecture.deb"
	else
		echo "tinylet-$VERSION-$binary"
	fi
}

# fetch NAME LIMIT gets a file of the release, of at most LIMIT bytes.
fetch() {
	case "$from" in
		https://*)
			# A redirect leads to https alone, and no more is read than the limit.
			need curl curl
			curl -fsSL --proto =https --proto-redir =https --max-filesize "$2" --retry 3 -o "$work/$1" "$from/$1" ||
				fail "download of $from/$1 failed";;
		*://*) fail "only https is supported: $from";;
		*) cp "$from/$1" "$work/$1" || fail "copy of $from/$1 failed";;
	esac
	[ "$(wc -c < "$work/$1")" -le "$2" ] || fail "$1 is larger than $2 bytes"
}

# verify checks the signature of the list, that it is of this version, and the checksum.
verify() {
	printf '%s\n' "-----BEGIN PUBLIC KEY-----" "$KEY" "-----END PUBLIC KEY-----" > "$work/key.pem"
	openssl pkeyutl -verify -pubin -inkey "$work/key.pem" -rawin -in "$work/SHA256SUMS" \
		-sigfile "$work/SHA256SUMS.sig" > /dev/null 2>&1 ||
		fail "the signature of SHA256SUMS is not of the key in this script; nothing was installed"
	head -n 1 "$work/SHA256SUMS" | grep -q "^# tinylet $VERSION commit " ||
		fail "SHA256SUMS is of another release; nothing was installed"
}

verify_file() {
	want=$(sed -n "s/^\([0-9a-f]\{64\}\)  $1\$/\1/p" "$work/SHA256SUMS")
	[ -n "$want" ] || fail "$1 is not in SHA256SUMS; nothing was installed"
	got=$(sha256sum < "$work/$1")
	[ "${got%% *}" = "$want" ] || fail "$1 has the checksum ${got%% *}, and SHA256SUMS has $want; nothing was installed"
}

install_file() {
	case "$1" in
		*.deb)
			if command -v apt-get >/dev/null; then
				chmod 0755 "$work" # for the user _apt
				apt-get install -y --allow-downgrades "$work/$1"
			else
				dpkg -i "$work/$1"
			fi;;
		*)
			install -m 0755 "$work/$1" /usr/bin/.tinylet.new
			sync
			mv /usr/bin/.tinylet.new /usr/bin/tinylet
			ln -snf tinylet /usr/bin/kubelet
			echo "Installed /usr/bin/tinylet. Restart the agent to use it; run 'tinylet check' first.";;
	esac
}

main() {
	dry_run='' only_binary='' from=$FROM
	while [ $# -gt 0 ]; do
		case "$1" in
			--dry-run) dry_run=1;;
			--binary) only_binary=1;;
			--from)
				[ $# -ge 2 ] || fail "--from needs a directory or a URL"
				from=${2%/}
				shift;;
			-h|--help) usage; exit 0;;
			*) usage >&2; exit 2;;
		esac
		shift
	done
	need openssl openssl
	need sha256sum coreutils
	[ -n "$dry_run" ] || [ "$(id -u)" = 0 ] || fail "run it as root, or with --dry-run"

	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	fetch SHA256SUMS 65536
	fetch SHA256SUMS.sig 1024
	verify
	name=$(file_name)
	fetch "$name" 100000000
	verify_file "$name"
	if [ -n "$dry_run" ]; then
		echo "Verified $name of tinylet $VERSION from $from. Nothing was installed."
	else
		install_file "$name"
	fi
}

# The last line: a script that was downloaded in part does nothing.
main "$@"
