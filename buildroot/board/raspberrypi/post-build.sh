#!/bin/sh
# Sets file modes that git does not keep, and adds a login on the screen: by
# itself Buildroot makes one on the serial port.
set -eu

# It holds the password of the Wi-Fi.
wpa=$TARGET_DIR/etc/wpa_supplicant.conf
[ ! -e "$wpa" ] || chmod 0600 "$wpa"

inittab=$TARGET_DIR/etc/inittab
line='tty1::respawn:/sbin/getty -L tty1 0 vt100 # HDMI console'

[ -e "$inittab" ] || exit 0 # systemd starts one by itself
grep -q '^tty1::' "$inittab" || echo "$line" >> "$inittab"
