#!/bin/sh
# post-image.sh IMAGES BOOT
#
# Makes the disk image from the board's file BOOT, which has the content of the boot
# partition, and genimage.cfg of this directory. Buildroot passes IMAGES.
set -eu

cat "$2" "$(dirname "$0")/genimage.cfg" > "$BUILD_DIR/genimage.cfg"
exec support/scripts/genimage.sh -c "$BUILD_DIR/genimage.cfg"
