#!/bin/sh
# Sets file modes that git does not store, and adds a login on the screen.
# Buildroot adds one only on the serial port.
set -eu

# It contains the Wi-Fi password.
wpa=$TARGET_DIR/etc/wpa_supplicant.conf
[ ! -e "$wpa" ] || chmod 0600 "$wpa"

inittab=$TARGET_DIR/etc/inittab
line='tty1::respawn:/sbin/getty -L tty1 0 vt100 # HDMI console'

[ -e "$inittab" ] || exit 0 # systemd starts a getty on the screen
grep -q '^tty1::' "$inittab" || echo "$line" >> "$inittab"
