################################################################################
#
# tinylet-containerd
#
################################################################################

# src/go.mod has the version.
TINYLET_CONTAINERD_VERSION = $(shell sed -n 's|^\t*github.com/containerd/containerd/v2 \(v[^ ]*\).*|\1|p' \
	$(TINYLET_CONTAINERD_PKGDIR)/src/go.mod)
TINYLET_CONTAINERD_SITE = $(TINYLET_CONTAINERD_PKGDIR)/src
TINYLET_CONTAINERD_SITE_METHOD = local
TINYLET_CONTAINERD_LICENSE = Apache-2.0
TINYLET_CONTAINERD_LICENSE_FILES = vendor/github.com/containerd/containerd/v2/LICENSE
TINYLET_CONTAINERD_CPE_ID_VENDOR = linuxfoundation
TINYLET_CONTAINERD_CPE_ID_PRODUCT = containerd

TINYLET_CONTAINERD_GOMOD = github.com/containerd/containerd/v2
TINYLET_CONTAINERD_BUILD_TARGETS = cmd/containerd cmd/containerd-shim-runc-v2
# Snapshotters and shim features that a board has no use for. The shim, which runs once
# per pod, is a third smaller without them.
TINYLET_CONTAINERD_TAGS = no_btrfs no_devmapper no_zfs no_rdt no_systemd no_tracing nri_no_wasm
TINYLET_CONTAINERD_GO_ENV = CGO_ENABLED=0 GOTOOLCHAIN=local
TINYLET_CONTAINERD_LDFLAGS = -s -w \
	-X $(TINYLET_CONTAINERD_GOMOD)/version.Version=$(TINYLET_CONTAINERD_VERSION)
TINYLET_CONTAINERD_PRE_BUILD_HOOKS += TINYLET_VENDOR_MODULES

$(eval $(golang-package))
