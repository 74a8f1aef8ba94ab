include $(sort $(wildcard $(BR2_EXTERNAL_TINYLET_PATH)/package/*/*.mk))
