package admit

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/randfill"
	"sigs.k8s.io/yaml"
)

func parse(t *testing.T, text string) *v1.Pod {
	t.Helper()
	p := &v1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(text), p); err != nil {
		t.Fatal(err)
	}
	return p
}

func fields(errs field.ErrorList) []string {
	var out []string
	for _, err := range errs {
		out = append(out, err.Field)
	}
	return out
}

// TestTableIsComplete follows the API's types as the rules walk them: each
// field has a rule, and each rule a field.
func TestTableIsComplete(t *testing.T) {
	seen := map[reflect.Type]bool{}
	var follow func(reflect.Type)
	follow = func(typ reflect.Type) {
		if seen[typ] {
			return
		}
		seen[typ] = true
		rules, ok := table[typ]
		if !ok {
			t.Errorf("%v is walked but has no rules", typ)
			return
		}
		known := map[string]bool{}
		for i := range typ.NumField() {
			f := typ.Field(i)
			name, _ := child(f, nil)
			known[name] = true
			r, ok := rules[name]
			if !ok {
				t.Errorf("%v: no rule for %s", typ, name)
			}
			if r.walk {
				below := f.Type
				for below.Kind() == reflect.Pointer || below.Kind() == reflect.Slice {
					below = below.Elem()
				}
				follow(below)
			}
		}
		for name := range rules {
			if !known[name] {
				t.Errorf("%v: a rule for %s, which is no field", typ, name)
			}
		}
	}
	follow(reflect.TypeFor[v1.PodSpec]())
	for typ := range table {
		if !seen[typ] {
			t.Errorf("rules for %v, which nothing walks to", typ)
		}
	}
}

func TestSupported(t *testing.T) {
	for name, spec := range map[string]string{
		"least":     `{containers: [{name: c, image: i}]}`,
		"empty":     `{securityContext: {}, resources: {}, runtimeClassName: "", volumes: [], tolerations: [], os: {name: linux}, containers: [{name: c, lifecycle: {}, securityContext: {}, envFrom: []}]}`,
		"defaults":  `{restartPolicy: Always, dnsPolicy: ClusterFirst, schedulerName: default-scheduler, enableServiceLinks: true, terminationGracePeriodSeconds: 30, containers: [{name: c, terminationMessagePath: /dev/termination-log, terminationMessagePolicy: File, imagePullPolicy: Always}]}`,
		"explicit":  `{hostUsers: true, hostPID: false, shareProcessNamespace: false, containers: [{name: c, volumeMounts: [{name: v, mountPath: /v, mountPropagation: None, recursiveReadOnly: Disabled}]}]}`,
		"scheduler": `{nodeSelector: {a: b}, priority: 5, priorityClassName: x, preemptionPolicy: Never, tolerations: [{operator: Exists}], affinity: {nodeAffinity: {}}, topologySpreadConstraints: [{maxSkew: 1}]}`,
		"network":   `{hostNetwork: true, hostname: h, subdomain: s, setHostnameAsFQDN: true, hostAliases: [{ip: 192.0.2.1}], dnsConfig: {searches: [a]}, containers: [{ports: [{hostPort: 80, hostIP: 192.0.2.1}]}]}`,
		"volumes":   `{volumes: [{name: a, emptyDir: {}}, {name: b, emptyDir: {medium: Memory, sizeLimit: 1Mi}}, {name: c, hostPath: {path: /x}}, {name: d, hostPath: {path: /x, type: CharDevice}}, {name: e}]}`,
		"env":       `{containers: [{env: [{name: A, value: x}, {name: B, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: "metadata.labels['x']"}}}, {name: C, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Mi, containerName: d}}}]}]}`,
		"resources": `{initContainers: [{name: i, resources: {requests: {cpu: 1, memory: 1Gi, ephemeral-storage: 1Gi}, limits: {cpu: 1, memory: 1Gi}}}]}`,
		"terminal":  `{activeDeadlineSeconds: 5, restartPolicy: Never, containers: [{name: c, stdin: true, stdinOnce: true, tty: true, workingDir: /, command: [a], args: [b]}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			if errs := Unsupported(parse(t, "spec: "+spec)); len(errs) > 0 {
				t.Errorf("refused: %v", errs)
			}
		})
	}
}

func TestUnsupported(t *testing.T) {
	for spec, want := range map[string][]string{
		`{hostPID: true, hostIPC: true}`:                                                    {"spec.hostPID", "spec.hostIPC"},
		`{hostUsers: false, shareProcessNamespace: true}`:                                   {"spec.shareProcessNamespace", "spec.hostUsers"},
		`{securityContext: {runAsUser: 0, fsGroup: 5}}`:                                     {"spec.securityContext.runAsUser", "spec.securityContext.fsGroup"},
		`{containers: [{}, {securityContext: {privileged: false}}]}`:                        {"spec.containers[1].securityContext.privileged"},
		`{initContainers: [{restartPolicy: Always}]}`:                                       {"spec.initContainers[0].restartPolicy"},
		`{ephemeralContainers: [{name: e}]}`:                                                {"spec.ephemeralContainers"},
		`{containers: [{livenessProbe: {}, lifecycle: {preStop: {}}}]}`:                     {"spec.containers[0].livenessProbe", "spec.containers[0].lifecycle.preStop"},
		`{containers: [{envFrom: [{prefix: x}]}]}`:                                          {"spec.containers[0].envFrom"},
		`{containers: [{env: [{name: A, valueFrom: {secretKeyRef: {key: a}}}]}]}`:           {"spec.containers[0].env[0].valueFrom.secretKeyRef"},
		`{containers: [{env: [{name: A, valueFrom: {fieldRef: {fieldPath: a}}}]}]}`:         {"spec.containers[0].env[0].valueFrom.fieldRef.fieldPath"},
		`{containers: [{env: [{name: A, valueFrom: {resourceFieldRef: {resource: a}}}]}]}`:  {"spec.containers[0].env[0].valueFrom.resourceFieldRef.resource"},
		`{containers: [{volumeMounts: [{subPath: a, mountPropagation: HostToContainer}]}]}`: {"spec.containers[0].volumeMounts[0].subPath", "spec.containers[0].volumeMounts[0].mountPropagation"},
		`{containers: [{volumeMounts: [{recursiveReadOnly: Enabled}]}]}`:                    {"spec.containers[0].volumeMounts[0].recursiveReadOnly"},
		`{containers: [{resources: {limits: {nvidia.com/gpu: 1, cpu: 1, hugepages-2Mi: 2Mi}, claims: [{name: a}]}}]}`: {
			"spec.containers[0].resources.limits[hugepages-2Mi]", "spec.containers[0].resources.limits[nvidia.com/gpu]", "spec.containers[0].resources.claims"},
		`{containers: [{resources: {limits: {ephemeral-storage: 1}}}]}`:                {"spec.containers[0].resources.limits[ephemeral-storage]"},
		`{volumes: [{name: a}, {name: b, secret: {}}]}`:                                {"spec.volumes[1].secret"},
		`{volumes: [{name: a, emptyDir: {sizeLimit: 1Mi}}]}`:                           {"spec.volumes[0].emptyDir.sizeLimit"},
		`{volumes: [{name: a, emptyDir: {medium: HugePages}}]}`:                        {"spec.volumes[0].emptyDir.medium"},
		`{volumes: [{name: a, hostPath: {path: /, type: Banana}}]}`:                    {"spec.volumes[0].hostPath.type"},
		`{runtimeClassName: kata, overhead: {cpu: 1}, resources: {limits: {cpu: 1}}}`:  {"spec.runtimeClassName", "spec.overhead", "spec.resources.limits"},
		`{serviceAccountName: a, imagePullSecrets: [{name: a}], readinessGates: [{}]}`: {"spec.serviceAccountName", "spec.imagePullSecrets", "spec.readinessGates"},
		`{os: {name: windows}}`: {"spec.os.name"},
	} {
		t.Run(spec, func(t *testing.T) {
			errs := Unsupported(parse(t, "spec: "+spec))
			if diff := cmp.Diff(want, fields(errs)); diff != "" {
				t.Error(diff)
			}
			for _, err := range errs {
				if err.Detail == "" {
					t.Errorf("%v has no reason", err)
				}
			}
		})
	}
}

func TestAnnotations(t *testing.T) {
	p := parse(t, `{metadata: {annotations: {container.apparmor.security.beta.kubernetes.io/c: unconfined, other: x}}}`)
	want := []string{"metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]"}
	if diff := cmp.Diff(want, fields(Unsupported(p))); diff != "" {
		t.Error(diff)
	}
}

func TestIdentity(t *testing.T) {
	for name, tc := range map[string]struct {
		metadata string
		want     []string
	}{
		"usual":   {`{namespace: a, name: b-c.d, uid: 0f3a-1}`, nil},
		"slashes": {`{namespace: a/b, name: /, uid: x/../../y}`, []string{"metadata.namespace", "metadata.name", "metadata.uid"}},
		"dots":    {`{name: .., uid: .}`, []string{"metadata.name", "metadata.uid"}},
		"NUL":     {`{uid: "a\0b"}`, []string{"metadata.uid"}},
		"long":    {"{uid: " + strings.Repeat("a", 246) + "}", []string{"metadata.uid"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, fields(Unsupported(parse(t, "metadata: "+tc.metadata)))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestUnknownField: a spec with a field that the table does not know.
func TestUnknownField(t *testing.T) {
	type newer struct {
		Later string `json:"later,omitempty"`
	}
	errs := visit(reflect.ValueOf(newer{Later: "x"}), field.NewPath("spec"))
	if len(errs) != 1 || errs[0].Field != "spec.later" {
		t.Errorf("got %v", errs)
	}
	if errs := visit(reflect.ValueOf(newer{}), field.NewPath("spec")); len(errs) > 0 {
		t.Errorf("unset: %v", errs)
	}
}

// TestRandomPods: whatever a pod holds, every refused field is named once,
// and a pod with all fields filled is refused.
func TestRandomPods(t *testing.T) {
	fill := randfill.NewWithSeed(1).NilChance(0.5).NumElements(0, 2)
	full := randfill.NewWithSeed(2).NilChance(0).NumElements(1, 2).MaxDepth(6)
	for range 300 {
		p := &v1.Pod{}
		fill.Fill(&p.Spec)
		seen := map[string]bool{}
		for _, err := range Unsupported(p) {
			if seen[err.Field] {
				t.Errorf("%s twice", err.Field)
			}
			seen[err.Field] = true
			if !strings.HasPrefix(err.Field, "spec.") {
				t.Errorf("field %q", err.Field)
			}
		}
	}
	p := &v1.Pod{}
	full.Fill(&p.Spec)
	// What a random value may leave at its default.
	name, yes, no := "x", true, false
	p.Spec.HostPID, p.Spec.HostIPC = true, true
	p.Spec.ShareProcessNamespace, p.Spec.HostUsers = &yes, &no
	p.Spec.RuntimeClassName, p.Spec.ServiceAccountName, p.Spec.DeprecatedServiceAccount = &name, name, name
	got := strings.Join(fields(Unsupported(p)), " ")
	for name, r := range table[reflect.TypeFor[v1.PodSpec]()] {
		if r.check != nil && !strings.Contains(got, "spec."+name) {
			t.Errorf("spec.%s passed in a pod that sets everything", name)
		}
	}
}

func FuzzUnsupported(f *testing.F) {
	f.Add([]byte(`{"spec":{"containers":[{"name":"c","env":[{"name":"A","valueFrom":{"fieldRef":{"fieldPath":"x"}}}]}],"volumes":[{"name":"v","emptyDir":{"sizeLimit":"1"}}]}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		p := &v1.Pod{}
		if json.Unmarshal(raw, p) != nil {
			return
		}
		first := Unsupported(p)
		if diff := cmp.Diff(fields(first), fields(Unsupported(p))); diff != "" {
			t.Errorf("not the same twice: %s", diff)
		}
		for _, err := range first {
			if err.Field == "" || err.Error() == "" {
				t.Errorf("%v names nothing", err)
			}
		}
	})
}
