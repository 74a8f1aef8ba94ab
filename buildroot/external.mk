# Buildroot copies a local Go module and does not vendor its dependencies. They come from the
# module proxy of the environment, and go.sum has their hashes. A module with a directory
# vendor is built offline.
define TINYLET_VENDOR_MODULES
	test -d $(@D)/vendor || { \
		cd $(@D) && $(HOST_GO_TARGET_ENV) GOFLAGS= GOPROXY="$(or $(GOPROXY),https://proxy.golang.org|direct)" GOTOOLCHAIN=local \
			$(GO_BIN) mod vendor -modcacherw; }
endef

include $(sort $(wildcard $(BR2_EXTERNAL_TINYLET_PATH)/package/*/*.mk))
