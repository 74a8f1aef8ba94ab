#!/bin/sh
# Prepares the root file system for a board on which it cannot be written: directories for
# what S00data mounts, in place of links, and modes that git does not store.
set -eu

# mount_point PATH [MODE]
mount_point() {
	[ ! -L "$TARGET_DIR$1" ] || rm "$TARGET_DIR$1"
	mkdir -p "$TARGET_DIR$1"
	chmod "${2:-0755}" "$TARGET_DIR$1"
}

mount_point /boot 0700
mount_point /data
mount_point /var/log
mount_point /var/lib/containerd
mount_point /var/lib/kubelet
mount_point /opt
mount_point /etc/dropbear 0700
# The clock's drift is measured again after each boot: a file of it is written each hour.
rm -rf "$TARGET_DIR/var/lib/chrony"
ln -s ../../run/chrony "$TARGET_DIR/var/lib/chrony"
# Nothing waits for the clock or for SSH: they start after the agent.
for script in S49chronyd S50dropbear; do
	old=$TARGET_DIR/etc/init.d/$script
	[ ! -e "$old" ] || mv "$old" "${old%/*}/S51${script#S??}"
done
# Programs look for the link, which the time zone replaces.
[ -e "$TARGET_DIR/etc/localtime" ] || ln -snf ../usr/share/zoneinfo/Etc/UTC "$TARGET_DIR/etc/localtime"

# It contains the Wi-Fi password.
wpa=$TARGET_DIR/etc/wpa_supplicant.conf
[ ! -e "$wpa" ] || chmod 0600 "$wpa"

# Programs of util-linux that no part of the image runs. Its set cannot be chosen one by one.
for name in blkdiscard chcpu choom col colcrt colrm column fdisk fincore hexdump ipcmk \
	isosize ldattach look lscpu lsipc lslocks lsns mcookie namei readprofile rev script \
	scriptlive scriptreplay swaplabel uuidgen uuidparse whereis; do
	for dir in bin sbin usr/bin usr/sbin; do
		if [ -f "$TARGET_DIR/$dir/$name" ] && [ ! -L "$TARGET_DIR/$dir/$name" ]; then
			rm "$TARGET_DIR/$dir/$name"
		fi
	done
done
