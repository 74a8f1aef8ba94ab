package admission

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// leaves are structs that are one value to a pod.
var leaves = map[reflect.Type]bool{
	reflect.TypeFor[resource.Quantity]():    true,
	reflect.TypeFor[intstr.IntOrString]():   true,
	reflect.TypeFor[metav1.LabelSelector](): true,
}

// honoured lists the packages below agent that act on each field of a type, by
// the last element of their path; "." is agent itself. Several are listed where each has its part;
// one of them must use the field.
var honoured = map[reflect.Type]map[string]string{
	reflect.TypeFor[v1.PodSpec](): {
		"volumes": "volume", "initContainers": "plan", "containers": "plan", "ephemeralContainers": "plan",
		"restartPolicy": "plan", "terminationGracePeriodSeconds": "pod", "activeDeadlineSeconds": "plan",
		"dnsPolicy": "criconfig", "nodeSelector": "admission", "serviceAccountName": "objects criconfig", "serviceAccount": "manifest",
		"nodeName": "admission", "hostNetwork": "criconfig", "hostPID": "criconfig", "hostIPC": "criconfig",
		"shareProcessNamespace": "criconfig", "securityContext": "criconfig", "imagePullSecrets": "image podsync",
		"hostname": "criconfig", "subdomain": "criconfig", "affinity": "admission", "tolerations": "pod admission", "hostAliases": "criconfig",
		"priority": "pod admission", "priorityClassName": "criconfig", "dnsConfig": "criconfig", "readinessGates": "podstatus", "runtimeClassName": "apiobjects",
		"overhead": "pod criconfig", "setHostnameAsFQDN": "criconfig", "os": "admission", "hostUsers": "userns criconfig",
		"resources": "pod criconfig", "hostnameOverride": "criconfig", "enableServiceLinks": "criconfig",
	},
	reflect.TypeFor[v1.PodOS]():                   {"name": "admission"},
	reflect.TypeFor[v1.PodReadinessGate]():        {"conditionType": "podstatus"},
	reflect.TypeFor[v1.LocalObjectReference]():    {"name": "volume criconfig podsync"},
	reflect.TypeFor[v1.HostAlias]():               {"ip": "criconfig", "hostnames": "criconfig"},
	reflect.TypeFor[v1.PodDNSConfig]():            {"nameservers": "criconfig", "searches": "criconfig", "options": "criconfig"},
	reflect.TypeFor[v1.PodDNSConfigOption]():      {"name": "criconfig", "value": "criconfig"},
	reflect.TypeFor[v1.Affinity]():                {"nodeAffinity": "admission"},
	reflect.TypeFor[v1.NodeAffinity]():            {"requiredDuringSchedulingIgnoredDuringExecution": "admission"},
	reflect.TypeFor[v1.NodeSelector]():            {"nodeSelectorTerms": "admission"},
	reflect.TypeFor[v1.NodeSelectorTerm]():        {"matchExpressions": "admission", "matchFields": "admission"},
	reflect.TypeFor[v1.NodeSelectorRequirement](): {"key": "admission", "operator": "admission", "values": "admission"},
	reflect.TypeFor[v1.Toleration]():              {"key": "admission", "operator": "admission", "value": "admission", "effect": "admission"},
	reflect.TypeFor[v1.PodSecurityContext](): {
		"seLinuxOptions": "criconfig", "runAsUser": "criconfig", "runAsGroup": "criconfig", "runAsNonRoot": "criconfig podsync",
		"supplementalGroups": "criconfig", "supplementalGroupsPolicy": "criconfig", "fsGroup": "volume", "sysctls": "criconfig admission",
		"fsGroupChangePolicy": "volume", "seccompProfile": "criconfig", "appArmorProfile": "criconfig",
	},
	reflect.TypeFor[v1.Sysctl]():               {"name": "criconfig", "value": "criconfig"},
	reflect.TypeFor[v1.SELinuxOptions]():       {"user": "criconfig", "role": "criconfig", "type": "criconfig", "level": "criconfig"},
	reflect.TypeFor[v1.SeccompProfile]():       {"type": "criconfig", "localhostProfile": "criconfig"},
	reflect.TypeFor[v1.AppArmorProfile]():      {"type": "criconfig", "localhostProfile": "criconfig"},
	reflect.TypeFor[v1.ResourceRequirements](): {"limits": "pod criconfig", "requests": "pod criconfig"},
	reflect.TypeFor[v1.Container](): {
		"name": "criconfig", "image": "image podsync", "command": "criconfig", "args": "criconfig", "workingDir": "criconfig",
		"ports": "criconfig", "envFrom": "criconfig", "env": "criconfig", "resources": "criconfig", "restartPolicy": "plan pod",
		"restartPolicyRules": "plan pod", "volumeMounts": "criconfig", "livenessProbe": "probe", "readinessProbe": "probe", "startupProbe": "probe",
		"lifecycle": "hook", "terminationMessagePath": "criconfig", "terminationMessagePolicy": "criconfig podstatus",
		"imagePullPolicy": "image podsync", "securityContext": "criconfig", "stdin": "criconfig", "stdinOnce": "criconfig", "tty": "criconfig",
	},
	reflect.TypeFor[v1.EphemeralContainer](): {"targetContainerName": "criconfig podsync"},
	reflect.TypeFor[v1.ContainerPort](): {
		"name": "handler probe hook", "hostPort": "criconfig", "containerPort": "criconfig", "protocol": "criconfig", "hostIP": "criconfig"},
	reflect.TypeFor[v1.EnvFromSource]():        {"prefix": "criconfig", "configMapRef": "criconfig podsync", "secretRef": "criconfig podsync"},
	reflect.TypeFor[v1.ConfigMapEnvSource]():   {"optional": "criconfig podsync"},
	reflect.TypeFor[v1.SecretEnvSource]():      {"optional": "criconfig podsync"},
	reflect.TypeFor[v1.EnvVar]():               {"name": "criconfig", "value": "criconfig", "valueFrom": "criconfig"},
	reflect.TypeFor[v1.EnvVarSource]():         {"fieldRef": "criconfig", "resourceFieldRef": "criconfig", "configMapKeyRef": "criconfig", "secretKeyRef": "criconfig", "fileKeyRef": "criconfig podsync"},
	reflect.TypeFor[v1.ConfigMapKeySelector](): {"key": "criconfig", "optional": "criconfig"},
	reflect.TypeFor[v1.SecretKeySelector]():    {"key": "criconfig", "optional": "criconfig"},
	reflect.TypeFor[v1.FileKeySelector](): {
		"volumeName": "criconfig podsync", "path": "criconfig podsync", "key": "criconfig podsync", "optional": "criconfig podsync"},
	reflect.TypeFor[v1.ObjectFieldSelector](): {"fieldPath": "criconfig"},
	reflect.TypeFor[v1.ResourceFieldSelector](): {
		"containerName": "criconfig", "resource": "criconfig", "divisor": "criconfig"},
	reflect.TypeFor[v1.ContainerRestartRule]():            {"action": "plan pod", "exitCodes": "plan pod"},
	reflect.TypeFor[v1.ContainerRestartRuleOnExitCodes](): {"operator": "plan pod", "values": "plan pod"},
	reflect.TypeFor[v1.Probe](): {
		"initialDelaySeconds": "probe", "timeoutSeconds": "probe", "periodSeconds": "probe",
		"successThreshold": "probe", "failureThreshold": "probe", "terminationGracePeriodSeconds": "probe podsync plan"},
	reflect.TypeFor[v1.ProbeHandler]():     {"exec": "handler", "httpGet": "handler", "tcpSocket": "handler", "grpc": "handler"},
	reflect.TypeFor[v1.Lifecycle]():        {"postStart": "hook podsync", "preStop": "hook podsync criconfig", "stopSignal": "criconfig"},
	reflect.TypeFor[v1.LifecycleHandler](): {"exec": "handler hook", "httpGet": "handler hook", "sleep": "handler hook"},
	reflect.TypeFor[v1.ExecAction]():       {"command": "handler"},
	reflect.TypeFor[v1.HTTPGetAction]():    {"path": "handler", "port": "handler", "host": "handler", "scheme": "handler", "httpHeaders": "handler"},
	reflect.TypeFor[v1.HTTPHeader]():       {"name": "handler", "value": "handler"},
	reflect.TypeFor[v1.TCPSocketAction]():  {"port": "handler", "host": "handler"},
	reflect.TypeFor[v1.GRPCAction]():       {"port": "handler", "service": "handler"},
	reflect.TypeFor[v1.SleepAction]():      {"seconds": "handler hook"},
	reflect.TypeFor[v1.SecurityContext](): {
		"capabilities": "criconfig", "privileged": "criconfig", "seLinuxOptions": "criconfig", "runAsUser": "criconfig", "runAsGroup": "criconfig",
		"runAsNonRoot": "criconfig podsync", "readOnlyRootFilesystem": "criconfig", "allowPrivilegeEscalation": "criconfig", "procMount": "criconfig",
		"seccompProfile": "criconfig", "appArmorProfile": "criconfig",
	},
	reflect.TypeFor[v1.Capabilities](): {"add": "criconfig", "drop": "criconfig"},
	reflect.TypeFor[v1.Volume]():       {"name": "volume"},
	reflect.TypeFor[v1.VolumeSource](): {
		"hostPath": "volume", "emptyDir": "volume", "image": "volume criconfig podsync", "configMap": "volume", "secret": "volume",
		"downwardAPI": "volume", "projected": "volume", "persistentVolumeClaim": "volume"},
	reflect.TypeFor[v1.HostPathVolumeSource]():    {"path": "volume", "type": "volume"},
	reflect.TypeFor[v1.EmptyDirVolumeSource]():    {"medium": "volume", "sizeLimit": "volume"},
	reflect.TypeFor[v1.ImageVolumeSource]():       {"reference": "volume podsync", "pullPolicy": "volume podsync"},
	reflect.TypeFor[v1.ConfigMapVolumeSource]():   {"items": "volume", "defaultMode": "volume", "optional": "volume"},
	reflect.TypeFor[v1.SecretVolumeSource]():      {"secretName": "volume", "items": "volume", "defaultMode": "volume", "optional": "volume"},
	reflect.TypeFor[v1.KeyToPath]():               {"key": "volume", "path": "volume", "mode": "volume"},
	reflect.TypeFor[v1.DownwardAPIVolumeSource](): {"items": "volume", "defaultMode": "volume"},
	reflect.TypeFor[v1.DownwardAPIVolumeFile]():   {"path": "volume", "fieldRef": "volume", "resourceFieldRef": "volume", "mode": "volume"},
	reflect.TypeFor[v1.ProjectedVolumeSource]():   {"sources": "volume", "defaultMode": "volume"},
	reflect.TypeFor[v1.VolumeProjection](): {
		"secret": "volume", "downwardAPI": "volume", "configMap": "volume", "serviceAccountToken": "volume"},
	reflect.TypeFor[v1.SecretProjection]():                  {"items": "volume", "optional": "volume"},
	reflect.TypeFor[v1.ConfigMapProjection]():               {"items": "volume", "optional": "volume"},
	reflect.TypeFor[v1.DownwardAPIProjection]():             {"items": "volume"},
	reflect.TypeFor[v1.ServiceAccountTokenProjection]():     {"audience": "volume", "expirationSeconds": "volume", "path": "volume"},
	reflect.TypeFor[v1.PersistentVolumeClaimVolumeSource](): {"claimName": "volume", "readOnly": "volume"},
	reflect.TypeFor[v1.VolumeMount](): {
		"name": "criconfig", "readOnly": "criconfig", "recursiveReadOnly": "criconfig", "mountPath": "criconfig",
		"subPath": "criconfig podsync volume", "mountPropagation": "criconfig", "subPathExpr": "criconfig podsync volume"},
}

// elsewhere are the fields that no kubelet acts on: they are taken, and do
// nothing on a node.
var elsewhere = []string{
	"Affinity.podAffinity", "Affinity.podAntiAffinity",
	"NodeAffinity.preferredDuringSchedulingIgnoredDuringExecution",
	"PodSecurityContext.windowsOptions",
	"PodSpec.automountServiceAccountToken", "PodSpec.evictionResponders", "PodSpec.preemptionPolicy",
	"PodSpec.schedulerName", "PodSpec.schedulingGroup", "PodSpec.topologySpreadConstraints",
	"SecurityContext.windowsOptions",
	"Toleration.tolerationSeconds",
}

func TestElsewhere(t *testing.T) {
	var marked []string
	for _, rules := range tables {
		for typ, fields := range rules {
			for name, r := range fields {
				if typ != reflect.TypeFor[v1.EphemeralContainerCommon]() && (r.mark == markControl || r.mark == markWindows) {
					marked = append(marked, typ.Name()+"."+name)
				}
			}
		}
	}
	slices.Sort(marked)
	if d := cmp.Diff(elsewhere, marked); d != "" {
		t.Errorf("-listed +marked:\n%s", d)
	}
}

// free are the string types that are no list of values, or whose unknown values
// are refused where they are used.
var free = map[reflect.Type]string{
	reflect.TypeFor[v1.PodConditionType]():     "any name",
	reflect.TypeFor[v1.OSName]():               "checkOS takes linux alone",
	reflect.TypeFor[v1.NodeSelectorOperator](): "a term with another one matches no node",
	reflect.TypeFor[v1.TolerationOperator]():   "a toleration with another one tolerates nothing",
	reflect.TypeFor[v1.TaintEffect]():          "a toleration with another one tolerates nothing",
	reflect.TypeFor[v1.Signal]():               "criconfig refuses another one",
	reflect.TypeFor[v1.StorageMedium]():        "isMedium",
}

// TestEveryChoice: for each field that has a list of values, any other value
// rejects the pod. Treated as the default, it could give less than the pod asks
// for, such as no seccomp profile.
func TestEveryChoice(t *testing.T) {
	n := 0
	for _, rules := range tables {
		for typ := range rules {
			for i := range typ.NumField() {
				f := typ.Field(i)
				kind := element(f.Type)
				if kind.Kind() != reflect.String || kind.PkgPath() != typ.PkgPath() || free[kind] != "" {
					continue
				}
				name, path := nameAndPath(f, field.NewPath("x"))
				r := rules[typ][name]
				if r.mark != "" {
					continue
				}
				n++
				v := reflect.New(f.Type).Elem()
				unknown := reflect.ValueOf("Newer").Convert(kind)
				if f.Type.Kind() == reflect.Pointer {
					v.Set(reflect.New(kind))
					v.Elem().Set(unknown)
				} else if f.Type == kind {
					v.Set(unknown)
				} else {
					continue // lists of names
				}
				if errs := r.apply(v, path); len(errs) == 0 {
					t.Errorf("%v.%s takes any value of %v", typ, name, kind)
				}
			}
		}
	}
	if n < 15 {
		t.Errorf("%d fields were looked at", n)
	}
}

// TestEveryField walks the API types from the pod's spec. Each field must be
// used by the package that honours it, or rejected, or used only by the control
// plane or Windows, or have a row in the tables of differences
// (docs/reference/compatibility.md). No rule may exist for a field that does not
// exist.
func TestEveryField(t *testing.T) {
	rows := differenceRows(t)
	seen := map[reflect.Type]bool{}
	var follow func(reflect.Type)
	follow = func(typ reflect.Type) {
		if seen[typ] || leaves[typ] {
			return
		}
		seen[typ] = true
		rules := rulesOf(typ)
		if rules == nil {
			t.Errorf("%v is walked but has no rules", typ)
			return
		}
		known := map[string]bool{}
		for i := range typ.NumField() {
			f := typ.Field(i)
			name, _ := nameAndPath(f, nil)
			known[name] = true
			r, ok := rules[name]
			if !ok {
				t.Errorf("%v: no rule for %s", typ, name)
				continue
			}
			account(t, typ, f, name, r, rows)
			if below := element(f.Type); r.walk {
				follow(below)
			} else if r.check == nil && r.mark == "" && below.Kind() == reflect.Struct && !leaves[below] {
				t.Errorf("%v.%s is taken without rules for the fields of %v", typ, name, below)
			}
		}
		for name := range rules {
			if !known[name] {
				t.Errorf("%v: a rule for %s, which is no field", typ, name)
			}
		}
	}
	follow(reflect.TypeFor[v1.PodSpec]())
	for _, rules := range tables {
		for typ := range rules {
			if !seen[typ] {
				t.Errorf("rules for %v, which nothing walks to", typ)
			}
		}
	}
	for typ := range honoured {
		if !seen[typ] {
			t.Errorf("%v is said to be honoured, but nothing walks to it", typ)
		}
	}
}

// account says where one field ends.
func account(t *testing.T, typ reflect.Type, f reflect.StructField, name string, r rule, rows string) {
	t.Helper()
	if f.Anonymous {
		return // its fields are the struct's own
	}
	places := honoured[typ][name]
	if typ == reflect.TypeFor[v1.EphemeralContainerCommon]() && r.check == nil {
		places = honoured[reflect.TypeFor[v1.Container]()][name]
	}
	switch {
	case r.mark == markControl || r.mark == markWindows:
		if places != "" {
			t.Errorf("%v.%s is marked %q and said to be honoured", typ, name, r.mark)
		}
	case r.mark == markUnmountable || r.mark == markNote:
		if !regexp.MustCompile("`" + name + `\b`).MatchString(rows) {
			t.Errorf("%v.%s is marked %q, but compatibility.md has no row of differences with `%s`", typ, name, r.mark, name)
		}
	case r.check != nil && places == "":
		// Refused, whatever it says: none of its values may pass.
		if errs := r.apply(sample(f.Type), nil); len(errs) == 0 {
			t.Errorf("%v.%s is neither honoured nor refused", typ, name)
		}
	case places == "":
		t.Errorf("%v.%s is taken, but nothing says where it is honoured", typ, name)
	case !used(t, places, f.Name):
		t.Errorf("%v.%s is said to be honoured in agent/{%s}, where nothing uses .%s", typ, name, places, f.Name)
	}
}

// sample is a value of a type that says something.
func sample(typ reflect.Type) reflect.Value {
	v := reflect.New(typ).Elem()
	switch typ.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(typ.Elem()))
		v.Elem().Set(sample(typ.Elem()))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(typ, 1, 1))
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Struct:
		for i := range typ.NumField() {
			v.Field(i).Set(sample(typ.Field(i).Type))
		}
	default:
	}
	return v
}

func element(typ reflect.Type) reflect.Type {
	for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
		typ = typ.Elem()
	}
	return typ
}

// packageDir is the directory of the one package below agent of that name.
func packageDir(t *testing.T, name string) string {
	t.Helper()
	const root = "../.."
	if name == "." {
		return root
	}
	var dirs []string
	for _, above := range []string{"", "*", "*/*"} {
		found, err := filepath.Glob(filepath.Join(root, above, name))
		if err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, found...)
	}
	if len(dirs) != 1 {
		t.Fatalf("package %s: found %q, want one directory", name, dirs)
	}
	return dirs[0]
}

// used reports whether the code of one of the packages selects a field.
func used(t *testing.T, packages, goName string) bool {
	t.Helper()
	selector := regexp.MustCompile(`\.` + goName + `\b`)
	for name := range strings.FieldsSeq(packages) {
		files, err := filepath.Glob(filepath.Join(packageDir(t, name), "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			if selector.MatchString(source(t, file)) {
				return true
			}
		}
	}
	return false
}

var sources = map[string]string{}

// source is a file's text without its comments.
func source(t *testing.T, file string) string {
	t.Helper()
	if text, ok := sources[file]; ok {
		return text
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for line := range strings.Lines(string(data)) {
		code, _, _ := strings.Cut(line, "//")
		b.WriteString(code + "\n")
	}
	sources[file] = b.String()
	return b.String()
}

// differenceRows is the rows of the tables of differences from the kubelet.
func differenceRows(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("../../../docs/reference/compatibility.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(data), "\n## Differences from the kubelet\n")
	if !ok {
		t.Fatal("compatibility.md has no tables of differences")
	}
	var rows strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "## ") {
			break
		}
		if strings.HasPrefix(line, "|") {
			rows.WriteString(line)
		}
	}
	return rows.String()
}
