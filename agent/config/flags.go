package config

import (
	"cmp"
	"log/slog"
	"reflect"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	kubelet "github.com/tinylet/tinylet/agent/config/kubeletconfig"
)

// Flags is the agent's command line: every flag of the kubelet. Create it with
// NewFlags, and Load it after the flag set has parsed.
type Flags struct {
	configFile       string
	configDir        string
	kubeconfig       string
	bootstrap        string
	hostnameOverride string
	nodeIP           string
	nodeLabels       map[string]string
	certDir          string
	rootDir          string
	cloudProvider    string

	set   *pflag.FlagSet
	bound []*fieldValue
}

// NewFlags defines the flags in set. It also accepts underscores for dashes in the
// names of flags, as the kubelet does.
func NewFlags(set *pflag.FlagSet) *Flags {
	f := &Flags{set: set}
	set.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(strings.ReplaceAll(name, "_", "-"))
	})
	f.addOwn(set)
	f.addBound(set)
	for _, flag := range ignoredFlags {
		addIgnored(set, flag)
	}
	return f
}

// addOwn adds the flags without a field in a document.
func (f *Flags) addOwn(set *pflag.FlagSet) {
	set.StringVar(&f.configFile, "config", "", "`file` with KubeletConfiguration and TinyletConfiguration documents")
	set.StringVar(&f.configDir, "config-dir", "", "`directory` of *.conf files that are merged over --config, in order of their names")
	set.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig `file` of the API server; without it the node runs standalone")
	set.StringVar(&f.bootstrap, "bootstrap-kubeconfig", "", "kubeconfig `file` for TLS bootstrap, used if the file of --kubeconfig does not exist")
	set.StringVar(&f.hostnameOverride, "hostname-override", "", "`name` of the node, instead of the host's")
	set.StringVar(&f.nodeIP, "node-ip", "", "`address` of the node, or one of each family, comma-separated; :: or 0.0.0.0 prefers a family")
	set.Func("node-labels", "labels to register the node with, `key=value,...`", f.setLabels)
	set.StringVar(&f.certDir, "cert-dir", defaultCertDir, "`directory` of the node's certificates")
	set.StringVar(&f.rootDir, "root-dir", DefaultRootDir, "`directory` of the pods' files and the agent's state")
	set.StringVar(&f.cloudProvider, "cloud-provider", "", "external if a cloud controller manager initializes the node, else empty")
}

func (f *Flags) addBound(set *pflag.FlagSet) {
	defaults, _ := Default()
	var scratch kubelet.KubeletConfiguration
	for i := range boundFlags {
		flag := &boundFlags[i]
		value := &fieldValue{flag: flag, scratch: fieldByPath(reflect.ValueOf(&scratch).Elem(), flag.field)}
		f.bound = append(f.bound, value)
		usage := cmp.Or(flag.usage, "sets "+flag.field+" of "+kubeletKind)
		if here := behaviourOf(flag.field); here != "" {
			usage = "not honoured: " + here
		}
		shorthand := ""
		if len(flag.name) == 1 {
			shorthand = flag.name
		}
		added := set.VarPF(value, flag.name, shorthand, usage)
		added.DefValue = showDefault(fieldByPath(reflect.ValueOf(&defaults).Elem(), flag.field))
		if value.Type() == "bool" {
			added.NoOptDefVal = "true"
		}
	}
}

// showDefault returns a default as text for the help, "" for a list, a map or a quantity.
func showDefault(v reflect.Value) string {
	if _, quantity := v.Interface().(resource.QuantityValue); quantity || v.Kind() == reflect.Slice || v.Kind() == reflect.Map {
		return ""
	}
	return showSetting(v)
}

func addIgnored(set *pflag.FlagSet, flag ignoredFlag) {
	usage := "no effect: " + flag.why
	switch kind := flag.kind.(type) {
	case bool:
		set.Bool(flag.name, kind, usage)
	case int:
		set.Int(flag.name, kind, usage)
	case int32:
		set.Int32(flag.name, kind, usage)
	case time.Duration:
		set.Duration(flag.name, kind, usage)
	default:
		set.String(flag.name, "", usage)
	}
}

// ignoredFlagWarnings returns a warning for each given flag without effect. For flags that set a
// field, unsupportedWarnings warns about the field.
func (f *Flags) ignoredFlagWarnings() []Warning {
	var warnings []Warning
	for _, flag := range ignoredFlags {
		if f.set.Changed(flag.name) {
			warnings = append(warnings, Warning{"flag has no effect", []slog.Attr{
				slog.String("flag", "--"+flag.name), slog.String("reason", flag.why),
			}})
		}
	}
	return warnings
}

// setLabels sets --node-labels. A key without "=" has an empty value.
func (f *Flags) setLabels(text string) error {
	if f.nodeLabels == nil {
		f.nodeLabels = make(map[string]string)
	}
	for part := range strings.SplitSeq(text, ",") {
		if part == "" {
			continue
		}
		key, value, _ := strings.Cut(part, "=")
		f.nodeLabels[strings.TrimSpace(key)] = strings.TrimSpace(value)
	}
	return nil
}
