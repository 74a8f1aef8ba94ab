################################################################################
#
# tinylet-pause
#
################################################################################

TINYLET_PAUSE_VERSION = 1
TINYLET_PAUSE_SITE = $(TINYLET_PAUSE_PKGDIR)/src
TINYLET_PAUSE_SITE_METHOD = local
TINYLET_PAUSE_LICENSE = Apache-2.0

# The GOARCH of the architecture, which image configurations use too.
ifeq ($(BR2_aarch64),y)
TINYLET_PAUSE_GOARCH = arm64
else ifeq ($(BR2_arm),y)
TINYLET_PAUSE_GOARCH = arm
else ifeq ($(BR2_x86_64),y)
TINYLET_PAUSE_GOARCH = amd64
endif

define TINYLET_PAUSE_BUILD_CMDS
	$(TARGET_CC) $(TARGET_CFLAGS) $(TARGET_LDFLAGS) -static -s \
		-o $(@D)/pause $(@D)/pause.c
	$(@D)/make-image $(@D)/pause $(TINYLET_PAUSE_GOARCH) $(@D)/pause.tar
endef

define TINYLET_PAUSE_INSTALL_TARGET_CMDS
	$(INSTALL) -D -m 0644 $(@D)/pause.tar \
		$(TARGET_DIR)/var/lib/tinylet/images/pause.tar
endef

$(eval $(generic-package))
