package config

import (
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"
)

// Flags is the agent's command line: every flag of the kubelet. Make it with
// NewFlags, add it to a flag set, and Load once that has parsed.
type Flags struct {
	configFile       string
	configDir        string
	kubeconfig       string
	bootstrap        string
	hostnameOverride string
	nodeIP           string
	nodeLabels       labels
	certDir          string
	rootDir          string
	cloudProvider    string

	set   *pflag.FlagSet // where Add put them
	bound []*fieldValue
}

// NewFlags is a command line on which nothing is set.
func NewFlags() *Flags { return &Flags{} }

// Add defines the flags in set, once. It also lets underscores stand for
// dashes in their names, as in the kubelet.
func (f *Flags) Add(set *pflag.FlagSet) {
	f.set = set
	set.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(strings.ReplaceAll(name, "_", "-"))
	})
	f.addOwn(set)
	f.addBound(set)
	for _, flag := range inertFlags {
		addInert(set, flag)
	}
}

// addOwn adds the flags that no document stands for.
func (f *Flags) addOwn(set *pflag.FlagSet) {
	set.StringVar(&f.configFile, "config", "", "`file` with KubeletConfiguration and TinyletConfiguration documents")
	set.StringVar(&f.configDir, "config-dir", "", "`folder` of *.conf files that are merged over --config, in order of their names")
	set.StringVar(&f.kubeconfig, "kubeconfig", "", "`file` that says how to reach the API server; without it the node stands alone")
	set.StringVar(&f.bootstrap, "bootstrap-kubeconfig", "", "`file` that is used to get the one of --kubeconfig where that does not exist")
	set.StringVar(&f.hostnameOverride, "hostname-override", "", "`name` of the node, instead of the host's")
	set.StringVar(&f.nodeIP, "node-ip", "", "`address` of the node, or one of each family with a comma; :: or 0.0.0.0 prefers a family")
	set.Var(&f.nodeLabels, "node-labels", "labels to register the node with, `key=value,...`")
	set.StringVar(&f.certDir, "cert-dir", defaultCertDir, "`folder` of the node's certificates")
	set.StringVar(&f.rootDir, "root-dir", defaultRootDir, "`folder` of the pods' files and the agent's state")
	set.StringVar(&f.cloudProvider, "cloud-provider", "", "external, where a cloud controller completes the node; else empty")
}

func (f *Flags) addBound(set *pflag.FlagSet) {
	defaults, _ := Default()
	var scratch kubelet.KubeletConfiguration
	for i := range boundFlags {
		flag := &boundFlags[i]
		value := &fieldValue{flag: flag, scratch: fieldByPath(reflect.ValueOf(&scratch).Elem(), flag.field)}
		f.bound = append(f.bound, value)
		usage := flag.usage
		if usage == "" {
			usage = "sets " + flag.field + " of " + kubeletKind
		}
		if here := insteadOf(flag.field); here != "" {
			usage = "is not honoured: " + here
		}
		shorthand := ""
		if len(flag.name) == 1 {
			shorthand = flag.name
		}
		added := set.VarPF(value, flag.name, shorthand, usage)
		added.DefValue = show(fieldByPath(reflect.ValueOf(&defaults).Elem(), flag.field))
		if value.Type() == "bool" {
			added.NoOptDefVal = "true"
		}
	}
}

// show is a default for the help, "" where it is not one plain value.
func show(v reflect.Value) string {
	if v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	switch value := v.Interface().(type) {
	case metav1.Duration:
		return value.Duration.String()
	case logsapi.TimeOrMetaDuration:
		return value.Duration.Duration.String()
	}
	if v.Kind() == reflect.Bool || v.Kind() == reflect.String || v.CanInt() || v.CanUint() {
		return fmt.Sprint(v.Interface())
	}
	return ""
}

func addInert(set *pflag.FlagSet, flag inertFlag) {
	usage := "has no effect: " + flag.why
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

// apply lets the flags that were given win over kc.
func (f *Flags) apply(kc *kubelet.KubeletConfiguration) error {
	for _, value := range f.bound {
		if err := value.apply(kc); err != nil {
			return err
		}
	}
	return nil
}

// inert warns of each given flag that does nothing. Those that stand for a
// field are warned of as that.
func (f *Flags) inert() []Warning {
	var warnings []Warning
	add := func(name, why string) {
		warnings = append(warnings, Warning{"flag has no effect", []slog.Attr{
			slog.String("flag", "--"+name), slog.String("reason", why),
		}})
	}
	for _, flag := range inertFlags {
		if f.changed(flag.name) {
			add(flag.name, flag.why)
		}
	}
	return warnings
}

func (f *Flags) changed(name string) bool { return f.set != nil && f.set.Changed(name) }

// labels is the pflag.Value of --node-labels. A key may stand alone, for an
// empty value.
type labels map[string]string

func (l *labels) Set(text string) error {
	if *l == nil {
		*l = make(labels)
	}
	for part := range strings.SplitSeq(text, ",") {
		if part == "" {
			continue
		}
		key, value, _ := strings.Cut(part, "=")
		(*l)[strings.TrimSpace(key)] = strings.TrimSpace(value)
	}
	return nil
}

func (l *labels) String() string { return "" }

func (l *labels) Type() string { return "key=value,..." }
