package config

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	kubelet "github.com/tinylet/tinylet/agent/config/kubeletconfig"
)

// honoured are the fields of KubeletConfiguration whose default and other values
// are honoured, each with a file that reads it. A field of which values are only
// rejected has a file of this package.
var honoured = map[string]string{
	"address":                                    "agent/server/server.go",
	"allowedUnsafeSysctls":                       "agent/node/nodeinfo/nodeinfo.go",
	"authentication.anonymous.enabled":           "agent/servers.go",
	"authentication.webhook.cacheTTL":            "agent/servers.go",
	"authentication.webhook.enabled":             "agent/servers.go",
	"authentication.x509.clientCAFile":           "agent/servers.go",
	"authorization.mode":                         "agent/servers.go",
	"authorization.webhook.cacheAuthorizedTTL":   "agent/servers.go",
	"authorization.webhook.cacheUnauthorizedTTL": "agent/servers.go",
	"cgroupDriver":                               "agent/node/nodeinfo/nodeinfo.go",
	"cgroupRoot":                                 "agent/node/nodeinfo/nodeinfo.go",
	"clusterDNS":                                 "agent/node/nodeinfo/nodeinfo.go",
	"clusterDomain":                              "agent/node/nodeinfo/nodeinfo.go",
	"containerLogMaxFiles":                       "agent/runtime.go",
	"containerLogMaxSize":                        "agent/config/config.go",
	"containerLogMaxWorkers":                     "agent/runtime.go",
	"containerLogMonitorInterval":                "agent/runtime.go",
	"containerRuntimeEndpoint":                   "agent/agent.go",
	"cpuCFSQuota":                                "agent/node/nodeinfo/nodeinfo.go",
	"cpuCFSQuotaPeriod":                          "agent/node/nodeinfo/nodeinfo.go",
	"cpuManagerPolicy":                           "agent/resource/cpumanager/manager.go",
	"cpuManagerPolicyOptions":                    "agent/resource/cpumanager/settings.go",
	"crashLoopBackOff.maxContainerRestartPeriod": "agent/config/config.go",
	"enableContentionProfiling":                  "agent/servers.go",
	"enableDebuggingHandlers":                    "agent/server/routes.go",
	"enableProfilingHandler":                     "agent/server/routes.go",
	"enableServer":                               "agent/servers.go",
	"enableSystemLogHandler":                     "agent/server/routes.go",
	"enforceNodeAllocatable":                     "agent/resource/podcgroup/reserved.go",
	"eventBurst":                                 "agent/cluster.go",
	"eventRecordQPS":                             "agent/cluster.go",
	"evictionHard":                               "agent/config/evictionapi/parse.go",
	"evictionMaxPodGracePeriod":                  "agent/node.go",
	"evictionMinimumReclaim":                     "agent/config/evictionapi/parse.go",
	"evictionPressureTransitionPeriod":           "agent/node.go",
	"evictionSoft":                               "agent/config/evictionapi/parse.go",
	"evictionSoftGracePeriod":                    "agent/config/evictionapi/parse.go",
	"featureGates":                               "agent/config/load.go",
	"healthzBindAddress":                         "agent/config/config.go",
	"healthzPort":                                "agent/config/config.go",
	"httpCheckFrequency":                         "agent/pods.go",
	"imageGCHighThresholdPercent":                "agent/runtime.go",
	"imageGCLowThresholdPercent":                 "agent/runtime.go",
	"imageMaximumGCAge":                          "agent/runtime.go",
	"imageMinimumGCAge":                          "agent/runtime.go",
	"imageServiceEndpoint":                       "agent/agent.go",
	"kubeReserved":                               "agent/node/nodestatus/resources.go",
	"kubeReservedCgroup":                         "agent/resource/podcgroup/reserved.go",
	"localStorageCapacityIsolation":              "agent/node/nodestatus/resources.go",
	"logging.format":                             "agent/config/defaults.go",
	"logging.verbosity":                          "cmd/tinylet/process.go",
	"maxOpenFiles":                               "agent/node/tunables/prepare.go",
	"maxParallelImagePulls":                      "agent/container/image/puller.go",
	"maxPods":                                    "agent/node/nodeinfo/nodeinfo.go",
	"memoryReservationPolicy":                    "agent/node/nodeinfo/nodeinfo.go",
	"memorySwap.swapBehavior":                    "agent/node/nodeinfo/nodeinfo.go",
	"memoryThrottlingFactor":                     "agent/node/nodeinfo/nodeinfo.go",
	"mergeDefaultEvictionSettings":               "agent/config/defaults.go",
	"nodeLeaseDurationSeconds":                   "agent/registration.go",
	"nodeStatusMaxImages":                        "agent/node/nodestatus/runtime.go",
	"nodeStatusReportFrequency":                  "agent/registration.go",
	"nodeStatusUpdateFrequency":                  "agent/registration.go",
	"oomScoreAdj":                                "agent/agent.go",
	"podCIDR":                                    "agent/config/network.go",
	"podLogsDir":                                 "agent/config/load.go",
	"podPidsLimit":                               "agent/node/nodeinfo/nodeinfo.go",
	"podsPerCore":                                "agent/node/nodeinfo/nodeinfo.go",
	"port":                                       "agent/server/server.go",
	"protectKernelDefaults":                      "agent/node/tunables/prepare.go",
	"providerID":                                 "agent/node/nodestatus/initial.go",
	"registerNode":                               "agent/registration.go",
	"registerWithTaints":                         "agent/node/nodestatus/initial.go",
	"registryBurst":                              "agent/container/image/puller.go",
	"registryPullQPS":                            "agent/container/image/puller.go",
	"reservedSystemCPUs":                         "agent/resource/cpumanager/settings.go",
	"resolvConf":                                 "agent/node/nodeinfo/nodeinfo.go",
	"rotateCertificates":                         "agent/cluster.go",
	"runOnce":                                    "agent/config/validate.go",
	"runtimeRequestTimeout":                      "agent/agent.go",
	"seccompDefault":                             "agent/node/nodeinfo/nodeinfo.go",
	"serializeImagePulls":                        "agent/container/image/puller.go",
	"serverTLSBootstrap":                         "agent/cluster.go",
	"shutdownGracePeriod":                        "agent/node/shutdown/plan.go",
	"shutdownGracePeriodByPodPriority":           "agent/node/shutdown/plan.go",
	"shutdownGracePeriodCriticalPods":            "agent/node/shutdown/plan.go",
	"singleProcessOOMKill":                       "agent/node/nodeinfo/nodeinfo.go",
	"staticPodPath":                              "agent/pods.go",
	"staticPodURL":                               "agent/pods.go",
	"staticPodURLHeader":                         "agent/pods.go",
	"streamingConnectionIdleTimeout":             "agent/servers.go",
	"systemReserved":                             "agent/node/nodestatus/resources.go",
	"systemReservedCgroup":                       "agent/resource/podcgroup/reserved.go",
	"tlsCertFile":                                "agent/cluster.go",
	"tlsCipherSuites":                            "agent/server/tls.go",
	"tlsCurvePreferences":                        "agent/server/tls.go",
	"tlsMinVersion":                              "agent/server/tls.go",
	"tlsPrivateKeyFile":                          "agent/cluster.go",
	"userNamespaces.idsPerPod":                   "agent/resource/userns/lazy.go",
}

// honouredFlags are the flags without a field, each with its reader.
var honouredFlags = map[string]string{
	"bootstrap-kubeconfig": "f.bootstrap", "cert-dir": "f.certDir", "cloud-provider": "f.cloudProvider", "config": "f.configFile",
	"config-dir": "f.configDir", "hostname-override": "f.hostnameOverride", "kubeconfig": "f.kubeconfig", "node-ip": "f.nodeIP",
	"node-labels": "f.nodeLabels", "root-dir": "f.rootDir",
}

// root is the repository's directory.
const root = "../.."

// fields returns the fields of a type by their JSON paths, with their Go names.
// Structs of packages that are not configurations count as values, as do whole
// settings that are not honoured.
func fields(t reflect.Type, path string, into map[string]string) {
	for i := range t.NumField() {
		field := t.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" {
			continue // the type's own name and version
		}
		at, inner := path+name, field.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		whole := slices.ContainsFunc(unsupportedSettings, func(u UnsupportedSetting) bool { return u.Field == at })
		ofConfig := strings.HasSuffix(inner.PkgPath(), "agent/config/kubeletconfig")
		if inner.Kind() == reflect.Struct && ofConfig && !whole && inner.Name() != "TimeOrMetaDuration" {
			fields(inner, at+".", into)
			continue
		}
		into[at] = field.Name
	}
}

// TestEveryFieldIsHonouredOrNot fails for a field that is in neither list.
func TestEveryFieldIsHonouredOrNot(t *testing.T) {
	all := make(map[string]string)
	fields(reflect.TypeFor[kubelet.KubeletConfiguration](), "", all)
	if len(all) < 120 {
		t.Fatalf("only %d fields", len(all))
	}
	not := make(map[string]bool)
	for i, u := range unsupportedSettings {
		not[u.Field] = true
		if all[u.Field] == "" || u.Behaviour == "" || u.Remedy == "" || i > 0 && unsupportedSettings[i-1].Field >= u.Field {
			t.Errorf("%+v is no field, is not whole, or stands in the wrong place", u)
		}
	}
	for path, name := range all {
		file, read := honoured[path]
		if read == not[path] {
			t.Errorf("%s: honoured %v, in the list of those that are not %v: want one", path, read, not[path])
		}
		if !read {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil || !regexp.MustCompile(`\.`+name+`\b`).Match(text) {
			t.Errorf("%s is not read by %s: %v", path, file, err)
		}
	}
	for path := range honoured {
		if all[path] == "" {
			t.Errorf("%s is no field", path)
		}
	}
}

// TestEveryFlagIsHonouredOrNot fails for a flag that is in no list.
func TestEveryFlagIsHonouredOrNot(t *testing.T) {
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	NewFlags(set)
	source, err := os.ReadFile("load.go")
	if err != nil {
		t.Fatal(err)
	}
	set.VisitAll(func(flag *pflag.Flag) {
		at := slices.IndexFunc(boundFlags, func(b boundFlag) bool { return b.name == flag.Name })
		inert := slices.ContainsFunc(ignoredFlags, func(i ignoredFlag) bool { return i.name == flag.Name && i.why != "" })
		switch reader, own := honouredFlags[flag.Name], honouredFlags[flag.Name] != ""; {
		case at >= 0:
			field := boundFlags[at].field
			_, read := honoured[field]
			if instead := behaviourOf(field) != ""; read == instead || instead != strings.HasPrefix(flag.Usage, "not honoured: ") {
				t.Errorf("--%s: %s is honoured %v, usage %q", flag.Name, field, read, flag.Usage)
			}
		case inert:
		case !own || !bytes.Contains(source, []byte(reader)):
			t.Errorf("--%s is neither read nor said to have no effect", flag.Name)
		}
	})
}

// another sets v to another value.
func another(t *testing.T, v reflect.Value) {
	t.Helper()
	switch {
	case v.Kind() == reflect.Pointer:
		fresh := reflect.New(v.Type().Elem())
		if !v.IsNil() {
			fresh.Elem().Set(v.Elem())
		}
		another(t, fresh.Elem())
		v.Set(fresh)
	case v.Kind() == reflect.Bool:
		v.SetBool(!v.Bool())
	case v.Kind() == reflect.String:
		v.SetString(v.String() + "x")
	case v.CanInt():
		v.SetInt(v.Int() + 7)
	case v.Kind() == reflect.Map:
		made := reflect.MakeMap(v.Type())
		made.SetMapIndex(reflect.ValueOf("a").Convert(v.Type().Key()), reflect.Zero(v.Type().Elem()))
		v.Set(made)
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				another(t, v.Field(i))
				return
			}
		}
	default:
		t.Fatalf("no other value of %s", v.Type())
	}
}

func TestUnhonouredSettingsWarnOnce(t *testing.T) {
	kc, _ := Default()
	if warnings := unsupportedWarnings(&kc); len(warnings) > 0 {
		t.Errorf("defaults: %v", warnings)
	}
	for _, u := range unsupportedSettings {
		kc, _ := Default()
		value := fieldByPath(reflect.ValueOf(&kc).Elem(), u.Field)
		another(t, value)
		warnings := unsupportedWarnings(&kc)
		if showSetting(value) == u.HonouredValue {
			if len(warnings) > 0 {
				t.Errorf("%s: %s holds: %v", u.Field, u.HonouredValue, warnings)
			}
			continue
		}
		if len(warnings) != 1 || warnings[0].Message != notHonoured || fmt.Sprint(warnings[0].Attrs[0]) != "field="+u.Field || len(warnings[0].Attrs) != 4 {
			t.Errorf("%s: %v", u.Field, warnings)
		}
	}
	_, warnings := mustBuild(t, []string{"--kube-api-qps=7", "--sync-frequency=2m", "--pod-manifest-path=/m"}, optional(kubeletHead+"tracing: {samplingRatePerMillion: 5}\nsyncFrequency: 1m"))
	if text := fmt.Sprint(warnings); len(warnings) != 3 || !strings.Contains(text, "field=tracing") || !strings.Contains(text, "value={\"samplingRatePerMillion\":5}") {
		t.Errorf("from a file and flags: %s", text)
	}
	kc.QOSReserved = map[string]string{"memory": strings.Repeat("ä", 1<<16)}
	if warnings := unsupportedWarnings(&kc); len(fmt.Sprint(warnings)) > 1000 {
		t.Errorf("%d bytes of warnings", len(fmt.Sprint(warnings)))
	}
}

// TestKubeadmSettingsAreQuiet checks that the configuration of kubeadm, which sets
// most fields, sets nothing that is not honoured.
func TestKubeadmSettingsAreQuiet(t *testing.T) {
	_, warnings := mustBuild(t, nil, optional(kubeletHead+`
authentication: {anonymous: {enabled: false}, webhook: {cacheTTL: 0s, enabled: true}, x509: {clientCAFile: /etc/kubernetes/pki/ca.crt}}
authorization: {mode: Webhook, webhook: {cacheAuthorizedTTL: 0s, cacheUnauthorizedTTL: 0s}}
cgroupDriver: systemd
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cpuManagerReconcilePeriod: 0s
crashLoopBackOff: {}
evictionPressureTransitionPeriod: 0s
fileCheckFrequency: 0s
healthzBindAddress: 127.0.0.1
healthzPort: 10248
httpCheckFrequency: 0s
imageMaximumGCAge: 0s
imageMinimumGCAge: 0s
logging: {flushFrequency: 0, options: {json: {infoBufferSize: "0"}, text: {infoBufferSize: "0"}}, verbosity: 0}
memorySwap: {}
nodeStatusReportFrequency: 0s
nodeStatusUpdateFrequency: 0s
rotateCertificates: true
runtimeRequestTimeout: 0s
shutdownGracePeriod: 0s
shutdownGracePeriodCriticalPods: 0s
staticPodPath: /etc/kubernetes/manifests
streamingConnectionIdleTimeout: 0s
syncFrequency: 0s
volumeStatsAggPeriod: 0s
`))
	if len(warnings) > 0 {
		t.Errorf("%v", warnings)
	}
}

func TestGates(t *testing.T) {
	others := strings.Fields(otherGates)
	for i, g := range nodeGates {
		if slices.Contains(others, g.Name) || i > 0 && nodeGates[i-1].Name >= g.Name {
			t.Errorf("%s is in both lists, or stands in the wrong place", g.Name)
		}
		for _, value := range []bool{false, true} {
			_, warnings := mustBuild(t, []string{"--pod-manifest-path=/m", "--feature-gates=" + g.Name + "=" + strconv.FormatBool(value)}, nil)
			if warned := len(warnings) == 1 && warnings[0].Message == "feature gate has no effect"; warned != (!g.Honoured && value != g.Effective) || len(warnings) > 1 {
				t.Errorf("%s=%v: %v", g.Name, value, warnings)
			}
		}
	}
	// What is read is really read.
	for _, g := range nodeGates {
		if !g.Honoured {
			continue
		}
		read := false
		for _, file := range []string{"agent/node/shutdown/plan.go", "agent/resource/cpumanager/manager.go"} {
			text, err := os.ReadFile(filepath.Join(root, file))
			read = read || err == nil && bytes.Contains(text, []byte(strconv.Quote(g.Name)))
		}
		if !read {
			t.Errorf("%s is not read", g.Name)
		}
	}
	_, warnings := mustBuild(t, []string{"--pod-manifest-path=/m", "--feature-gates=MemoryQoS=true"}, optional(tinyletHead+"memoryQoS: false"))
	if len(warnings) != 1 {
		t.Errorf("MemoryQoS against memoryQoS: %v", warnings)
	}
}

// compatibility is the path of the page that is generated from these lists.
const compatibility = root + "/docs/reference/compatibility.md"

// TestCompatibilityPage checks that the page matches the code.
func TestCompatibilityPage(t *testing.T) {
	kc, _ := Default()
	var b strings.Builder
	b.WriteString("## Settings that are not honoured\n\n| field | flag | default | honoured at | what happens here | remedy |\n|---|---|---|---|---|---|\n")
	flags := make(map[string][]string)
	for _, f := range boundFlags {
		at := f.field
		for _, u := range unsupportedSettings {
			if strings.HasPrefix(f.field, u.Field+".") {
				at = u.Field
			}
		}
		flags[at] = append(flags[at], "`--"+f.name+"`")
	}
	for _, u := range unsupportedSettings {
		holds := "`" + u.HonouredValue + "`"
		switch u.HonouredValue {
		case "":
			holds = "the default"
		case NoValue:
			holds = "no value"
		}
		value := showSetting(fieldByPath(reflect.ValueOf(&kc).Elem(), u.Field))
		if value != "" {
			value = "`" + value + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", u.Field, strings.Join(flags[u.Field], ", "), value, holds, u.Behaviour, u.Remedy)
	}
	b.WriteString("\n## Flags without effect\n\n| flag | why |\n|---|---|\n")
	for _, f := range ignoredFlags {
		fmt.Fprintf(&b, "| `--%s` | %s |\n", f.name, f.why)
	}
	b.WriteString("\n## Feature gates\n\n| gate | kubelet 1.36 | here | honoured |\n|---|---|---|---|\n")
	is := map[bool]string{false: "off", true: "on"}
	for _, g := range nodeGates {
		holds := map[bool]string{false: "while it is `" + strconv.FormatBool(g.Effective) + "`", true: "yes"}[g.Honoured]
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", g.Name, is[g.Default], is[g.Effective], holds)
	}
	page, err := os.ReadFile(compatibility)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- generated: go test ./agent/config -run TestCompatibilityPage -update -->\n", "<!-- end -->\n"
	before, rest, ok := strings.Cut(string(page), begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no place for what is generated", compatibility)
	}
	want := before + begin + "\n" + b.String() + "\n" + end + after
	if *update {
		if err := os.WriteFile(compatibility, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(page) != want {
		t.Errorf("%s is not what the code says: -update writes it", compatibility)
	}
	if names := slices.Sorted(maps.Keys(flags)); len(names) < 80 {
		t.Errorf("only %d fields have flags", len(names))
	}
}
