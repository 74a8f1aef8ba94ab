package config

import (
	"encoding/json"
	"log/slog"
	"reflect"
	"strings"

	kubelet "k8s.io/kubelet/config/v1beta1"
)

// Unhonoured is a setting of KubeletConfiguration that this agent takes and
// does not honour, wholly or in part.
type Unhonoured struct {
	// Field is the field's JSON path.
	Field string
	// Holds is the value by which the agent does what the field says: "" is the
	// default, and NoValue that there is none.
	Holds string
	// Here is what happens whatever the value is, Remedy what to do.
	Here, Remedy string
}

// NoValue is the Holds of a field that no value of is honoured.
const NoValue = "-"

const (
	leaveOut    = "leave it out"
	noRemedy    = "leave it out: nothing has to be set"
	oneNode     = "leave it out on a machine with one memory node"
	eventBased  = "nothing is polled: a change is an event"
	noIPTables  = "the agent makes no rules of iptables"
	notAligned  = "devices, CPUs and memory are not aligned"
	fewRequests = "requests are not limited: few are made, and the server's wish to wait is followed"
)

// Differences are the settings that are not honoured, in the order of their
// fields.
func Differences() []Unhonoured { return unhonoured }

var unhonoured = []Unhonoured{
	{"cgroupsPerQOS", "", "pods always have cgroups of their classes", leaveOut},
	{"configMapAndSecretChangeDetectionStrategy", "", "objects that pods use are watched", leaveOut},
	{"contentType", "", "requests are protobuf, patches JSON", leaveOut},
	{"cpuManagerReconcilePeriod", NoValue, "containers are moved when what is shared changes", noRemedy},
	{"defaultPodSysctls", "", "a field of 1.37: pods get no sysctls but their own", "set sysctls in the securityContext of pods"},
	{"enableControllerAttachDetach", "", "the Node's annotation follows it, and nothing here attaches volumes", leaveOut},
	{"enableDebugFlagsHandler", "false", "/debug/flags/v says that it is disabled", "set logging.verbosity and restart tinylet"},
	{"enableSystemLogQuery", "", "/logs/ serves files and takes no query", "read the log on the node"},
	{"failCgroupV1", "", "the agent starts with cgroup v2 alone", "boot with cgroup v2"},
	{"failSwapOn", "false", "the agent starts with swap on, and warns of it; memorySwap says what pods may use", "set it to false, or switch swap off"},
	{"fileCheckFrequency", NoValue, eventBased, noRemedy},
	{"hairpinMode", NoValue, "on the own network a pod reaches itself by its Service; on others their plugin decides", noRemedy},
	{"imagePullCredentialsVerificationPolicy", "", "an image that is present may be used by every pod of the node; the kubelet's default is NeverVerifyPreloadedImages", "set imagePullPolicy: Always on pods with private images"},
	{"iptablesDropBit", NoValue, noIPTables, noRemedy},
	{"iptablesMasqueradeBit", NoValue, noIPTables, noRemedy},
	{"kernelMemcgNotification", "true", "the kernel's signs of memory pressure are always followed", noRemedy},
	{"kubeAPIBurst", NoValue, fewRequests, noRemedy},
	{"kubeAPIQPS", NoValue, fewRequests, noRemedy},
	{"kubeletCgroups", "", "the agent is in the cgroup /tinylet, or where its init puts it", "set ownCgroup of TinyletConfiguration"},
	{"logging.flushFrequency", NoValue, "logs are written unbuffered, to one stream", noRemedy},
	{"logging.options", "", "logs are written unbuffered, to one stream", leaveOut},
	{"logging.vmodule", "", "the log has one level", "set logging.verbosity (--v)"},
	{"makeIPTablesUtilChains", "false", noIPTables, noRemedy},
	{"memoryManagerPolicy", "", "memory is not pinned to memory nodes", oneNode},
	{"preloadedImagesVerificationAllowlist", "", "an image that is present may be used by every pod of the node", "set imagePullPolicy: Always on pods with private images"},
	{"qosReserved", "", "nothing is reserved by class: memoryQoS of TinyletConfiguration protects requests", leaveOut},
	{"readOnlyPort", "", "the port without authentication is never opened", "ask port 10250"},
	{"reservedMemory", "", "memory is not pinned to memory nodes", oneNode},
	{"showHiddenMetricsForVersion", "", "there are no hidden metrics", leaveOut},
	{"syncFrequency", NoValue, eventBased, noRemedy},
	{"systemCgroups", "", "processes that are not the agent's or the container runtime's are not moved", "have the init put them into a cgroup"},
	{"topologyManagerPolicy", "", notAligned, oneNode},
	{"topologyManagerPolicyOptions", "", notAligned, oneNode},
	{"topologyManagerScope", "", notAligned, oneNode},
	{"tracing", "", "no traces are sent", "run a kubelet on nodes that need it"},
	{"volumePluginDir", NoValue, "there are no FlexVolume plugins; the agent warns where the folder has any", "use volumes of another kind"},
	{"volumeStatsAggPeriod", NoValue, "what volumes use is read when somebody asks", noRemedy},
}

// unhonouredSettings warns of each setting that is not honoured and that
// somebody has set: its value is neither the default nor what happens here.
func unhonouredSettings(kc *kubelet.KubeletConfiguration) []Warning {
	var defaults kubelet.KubeletConfiguration
	setDefaults(&defaults, 0)
	var warnings []Warning
	for i := range unhonoured {
		u := &unhonoured[i]
		value := showSetting(fieldByPath(reflect.ValueOf(kc).Elem(), u.Field))
		if value == showSetting(fieldByPath(reflect.ValueOf(&defaults).Elem(), u.Field)) || value == u.Holds {
			continue
		}
		warnings = append(warnings, Warning{notHonoured, []slog.Attr{
			slog.String("field", u.Field), slog.String("value", value), slog.String("here", u.Here), slog.String("remedy", u.Remedy),
		}})
	}
	return warnings
}

const notHonoured = "setting is not honoured"

// maxShown bounds a value in a warning, in bytes.
const maxShown = 256

// showSetting is a value as in a document, in JSON; "" where it is empty.
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

// insteadOf is what happens in place of what a field says, "" where it is
// honoured. A field stands for those below it.
func insteadOf(field string) string {
	for i := range unhonoured {
		if u := &unhonoured[i]; field == u.Field || strings.HasPrefix(field, u.Field+".") {
			return u.Here
		}
	}
	return ""
}
