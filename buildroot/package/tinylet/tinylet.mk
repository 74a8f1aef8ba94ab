################################################################################
#
# tinylet
#
################################################################################

ifeq ($(BR2_PACKAGE_TINYLET_SOURCE_RELEASE),y)
TINYLET_VERSION = $(call qstrip,$(BR2_PACKAGE_TINYLET_RELEASE))
TINYLET_SITE = $(call github,tinylet,tinylet,v$(TINYLET_VERSION))
TINYLET_RELEASE = $(TINYLET_VERSION)
# An archive has no build time and no commit. The epoch of Buildroot's version is a lower bound:
# a clock that shows an earlier time is wrong.
TINYLET_BUILD_UNIX = $(BR2_VERSION_EPOCH)
# The user selects the version, so its hash is unknown here. It is checked if
# tinylet/tinylet.hash exists in a directory of BR2_GLOBAL_PATCH_DIR.
ifeq ($(wildcard $(addsuffix /tinylet/tinylet.hash,$(call qstrip,$(BR2_GLOBAL_PATCH_DIR)))),)
BR_NO_CHECK_HASH_FOR += $(TINYLET_SOURCE)
endif

ifeq ($(BR_BUILDING)$(TINYLET_VERSION),y)
$(error No release specified in BR2_PACKAGE_TINYLET_RELEASE)
endif
else
TINYLET_VERSION = local
TINYLET_SITE = $(BR2_EXTERNAL_TINYLET_PATH)/..
TINYLET_SITE_METHOD = local
# Output of the project's Makefile.
TINYLET_OVERRIDE_SRCDIR_RSYNC_EXCLUSIONS = --exclude=/bin --exclude=/.cache
TINYLET_RELEASE = $(shell sed -n 's/^VERSION ?= //p' $(TINYLET_SITE)/Makefile)
TINYLET_COMMIT = $(shell git -C $(TINYLET_SITE) rev-parse HEAD 2>/dev/null)
TINYLET_BUILD_UNIX = $(or $(shell git -C $(TINYLET_SITE) log -1 --format=%ct 2>/dev/null),$(BR2_VERSION_EPOCH))
endif

TINYLET_LICENSE = Apache-2.0
TINYLET_LICENSE_FILES = LICENSE
TINYLET_GOMOD = github.com/tinylet/tinylet
TINYLET_BUILD_TARGETS = cmd/tinylet
# Omits x/net/trace, as the project's Makefile does.
TINYLET_TAGS = grpcnotrace
# Disables inlining in the packages of Kubernetes and YAML, as the Makefile does.
TINYLET_BUILD_OPTS = -gcflags=k8s.io/...=-l -gcflags=sigs.k8s.io/...=-l -gcflags=go.yaml.in/...=-l
# Builds a static binary that does not depend on the C library of the image.
# GOTOOLCHAIN=local keeps Buildroot's Go from downloading the newer one in the
# toolchain line of go.mod.
TINYLET_GO_ENV = CGO_ENABLED=0 GOTOOLCHAIN=local
TINYLET_LDFLAGS = -s -w \
	-X $(TINYLET_GOMOD)/agent/config/version.release=$(TINYLET_RELEASE) \
	-X $(TINYLET_GOMOD)/agent/config/version.buildUnix=$(TINYLET_BUILD_UNIX) \
	-X $(TINYLET_GOMOD)/agent/config/version.commit=$(TINYLET_COMMIT)

TINYLET_PRE_BUILD_HOOKS += TINYLET_VENDOR_MODULES

# The files that start tinylet are installed from the overlay, which boards without
# Buildroot use too. The files for containerd are installed with the whole overlay
# (BR2_ROOTFS_OVERLAY).
TINYLET_OVERLAY = $(BR2_EXTERNAL_TINYLET_PATH)/board/common/rootfs-overlay

define TINYLET_INSTALL_CONFIG
	$(INSTALL) -D -m 0644 $(TINYLET_OVERLAY)/etc/tinylet/config.yaml \
		$(TARGET_DIR)/etc/tinylet/config.yaml
	$(INSTALL) -d -m 0755 $(TARGET_DIR)/etc/kubernetes/manifests
endef

# The container runtime calls the binary as a CNI plugin. The agent also creates
# this link, but cannot on a read-only image.
define TINYLET_INSTALL_PLUGIN
	$(INSTALL) -d -m 0755 $(TARGET_DIR)/opt/cni/bin
	ln -snf /usr/bin/tinylet $(TARGET_DIR)/opt/cni/bin/tinylet-cni
endef
TINYLET_POST_INSTALL_TARGET_HOOKS += TINYLET_INSTALL_PLUGIN
TINYLET_POST_INSTALL_TARGET_HOOKS += TINYLET_INSTALL_CONFIG

# Runs before each start of the agent, with each init system.
define TINYLET_INSTALL_TRIAL
	$(INSTALL) -D -m 0755 $(TINYLET_OVERLAY)/usr/libexec/tinylet/trial \
		$(TARGET_DIR)/usr/libexec/tinylet/trial
endef
TINYLET_POST_INSTALL_TARGET_HOOKS += TINYLET_INSTALL_TRIAL

define TINYLET_INSTALL_INIT_SYSV
	$(INSTALL) -D -m 0755 $(TINYLET_OVERLAY)/usr/libexec/tinylet/supervise \
		$(TARGET_DIR)/usr/libexec/tinylet/supervise
	$(INSTALL) -D -m 0755 $(TINYLET_OVERLAY)/etc/init.d/S50tinylet \
		$(TARGET_DIR)/etc/init.d/S50tinylet
endef

define TINYLET_INSTALL_INIT_SYSTEMD
	$(INSTALL) -D -m 0644 \
		$(TINYLET_OVERLAY)/usr/lib/systemd/system/tinylet.service \
		$(TARGET_DIR)/usr/lib/systemd/system/tinylet.service
endef

$(eval $(golang-package))
