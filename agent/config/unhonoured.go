package config

import (
	"encoding/json"
	"log/slog"
	"reflect"
	"strings"

	kubelet "github.com/tinylet/tinylet/agent/config/kubeletconfig"
)

// UnsupportedSetting is a setting of KubeletConfiguration that tinylet accepts but does
// not honour, wholly or in part.
type UnsupportedSetting struct {
	// Field is the field's JSON path.
	Field string
	// HonouredValue is the value of the field that is honoured. "" means its default,
	// NoValue means that no value is honoured.
	HonouredValue string
	// Behaviour is tinylet's behaviour for every value. Remedy is what the user can
	// do.
	Behaviour, Remedy string
}

// NoValue is the HonouredValue of a field of which no value is honoured.
const NoValue = "-"

const (
	leaveOut    = "remove the setting"
	noRemedy    = "remove the setting: nothing has to be set"
	oneNode     = "remove the setting on a machine with one NUMA node"
	eventBased  = "changes are events, nothing is polled"
	noIPTables  = "tinylet creates no iptables rules"
	notAligned  = "devices, CPUs and memory are not aligned"
	fewRequests = "requests are not rate-limited: there are few, and Retry-After is respected"
)

// unsupportedSettings are the settings that are not honoured, ordered by field.
var unsupportedSettings = []UnsupportedSetting{
	{"cgroupsPerQOS", "", "pods always have a cgroup in that of their QoS class", leaveOut},
	{"configMapAndSecretChangeDetectionStrategy", "", "objects that pods refer to are watched", leaveOut},
	{"contentType", "", "requests are protobuf, patches JSON", leaveOut},
	{"cpuManagerReconcilePeriod", NoValue, "cpusets are updated when the shared CPU pool changes", noRemedy},
	{"defaultPodSysctls", "", "the field is new in 1.37: pods get only their own sysctls", "set sysctls in the securityContext of pods"},
	{"enableControllerAttachDetach", "", "only the annotation of the Node follows it: tinylet attaches no volumes", leaveOut},
	{"enableDebugFlagsHandler", "false", "/debug/flags/v responds that it is disabled", "set logging.verbosity and restart tinylet"},
	{"enableSystemLogQuery", "", "/logs/ serves files and supports no query", "read the log on the node"},
	{"failCgroupV1", "", "tinylet starts with cgroup v2 only", "boot with cgroup v2"},
	{"failSwapOn", "false", "tinylet starts with swap on and logs a warning; memorySwap controls the swap of pods", "set it to false, or turn swap off"},
	{"fileCheckFrequency", NoValue, eventBased, noRemedy},
	{"hairpinMode", NoValue, "tinylet's pod network supports hairpin traffic through Services; with another CNI plugin, the plugin decides", noRemedy},
	{"imagePullCredentialsVerificationPolicy", "", "every pod of the node may use an image that is present; the kubelet's default is NeverVerifyPreloadedImages", "set imagePullPolicy: Always on pods with private images"},
	{"iptablesDropBit", NoValue, noIPTables, noRemedy},
	{"iptablesMasqueradeBit", NoValue, noIPTables, noRemedy},
	{"kernelMemcgNotification", "true", "the kernel's memory pressure notifications are always used", noRemedy},
	{"kubeAPIBurst", NoValue, fewRequests, noRemedy},
	{"kubeAPIQPS", NoValue, fewRequests, noRemedy},
	{"kubeletCgroups", "", "tinylet is in the cgroup /tinylet, or in the cgroup that its init system assigns", "set ownCgroup of TinyletConfiguration"},
	{"logging.flushFrequency", NoValue, "logs are written unbuffered, to one stream", noRemedy},
	{"logging.options", "", "logs are written unbuffered, to one stream", leaveOut},
	{"logging.vmodule", "", "all components have one log level", "set logging.verbosity (--v)"},
	{"makeIPTablesUtilChains", "false", noIPTables, noRemedy},
	{"memoryManagerPolicy", "", "memory is not pinned to NUMA nodes", oneNode},
	{"preloadedImagesVerificationAllowlist", "", "every pod of the node may use an image that is present", "set imagePullPolicy: Always on pods with private images"},
	{"qosReserved", "", "nothing is reserved by QoS class: memoryQoS of TinyletConfiguration protects requests", leaveOut},
	{"readOnlyPort", "", "the port without authentication is never opened", "use port 10250"},
	{"reservedMemory", "", "memory is not pinned to NUMA nodes", oneNode},
	{"showHiddenMetricsForVersion", "", "there are no hidden metrics", leaveOut},
	{"syncFrequency", NoValue, eventBased, noRemedy},
	{"systemCgroups", "", "only the processes of tinylet and the container runtime are moved", "let the init system put other processes into a cgroup"},
	{"topologyManagerPolicy", "", notAligned, oneNode},
	{"topologyManagerPolicyOptions", "", notAligned, oneNode},
	{"topologyManagerScope", "", notAligned, oneNode},
	{"tracing", "", "no traces are sent", "run the kubelet on nodes that need it"},
	{"volumePluginDir", NoValue, "FlexVolume plugins are not supported; tinylet logs a warning if the directory has any", "use volumes of another type"},
	{"volumeStatsAggPeriod", NoValue, "volume usage is read on request", noRemedy},
}

// unsupportedWarnings returns a warning for each setting whose value is neither the
// default nor the value that is honoured.
func unsupportedWarnings(kc *kubelet.KubeletConfiguration) []Warning {
	var defaults kubelet.KubeletConfiguration
	setDefaults(&defaults, 0)
	var warnings []Warning
	for i := range unsupportedSettings {
		u := &unsupportedSettings[i]
		value := showSetting(fieldByPath(reflect.ValueOf(kc).Elem(), u.Field))
		if value == showSetting(fieldByPath(reflect.ValueOf(&defaults).Elem(), u.Field)) || value == u.HonouredValue {
			continue
		}
		warnings = append(warnings, Warning{notHonoured, []slog.Attr{
			slog.String("field", u.Field), slog.String("value", value), slog.String("behaviour", u.Behaviour), slog.String("remedy", u.Remedy),
		}})
	}
	return warnings
}

const notHonoured = "setting is not honoured"

// maxShown bounds a value in a warning, in bytes.
const maxShown = 256

// showSetting returns a value as JSON, a string without quotes, "" if it is empty.
func showSetting(v reflect.Value) string {
	for v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return ""
		}
		v = v.Elem()
	}
	if kind := v.Kind(); (kind == reflect.Map || kind == reflect.Slice) && v.Len() == 0 {
		return ""
	}
	if kind := v.Kind(); kind == reflect.String {
		return v.String()
	}
	data, err := json.Marshal(v.Interface())
	if err != nil {
		return err.Error()
	}
	text := strings.Trim(string(data), `"`)
	if len(text) > maxShown {
		text = strings.ToValidUTF8(text[:maxShown], "") + "..."
	}
	return text
}

// behaviourOf returns tinylet's behaviour for a field of unsupportedSettings, "" for
// others. An entry applies to the fields below its field as well.
func behaviourOf(field string) string {
	for i := range unsupportedSettings {
		if u := &unsupportedSettings[i]; field == u.Field || strings.HasPrefix(field, u.Field+".") {
			return u.Behaviour
		}
	}
	return ""
}
