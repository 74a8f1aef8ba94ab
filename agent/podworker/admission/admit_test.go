package admission

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

func TestSupported(t *testing.T) {
	for name, spec := range map[string]string{
		"least":       `{containers: [{name: c, image: i}]}`,
		"empty":       `{securityContext: {}, resources: {}, runtimeClassName: "", volumes: [], tolerations: [], os: {name: linux}, containers: [{name: c, lifecycle: {}, securityContext: {}, envFrom: []}]}`,
		"defaults":    `{restartPolicy: Always, dnsPolicy: ClusterFirst, schedulerName: default-scheduler, enableServiceLinks: true, terminationGracePeriodSeconds: 30, containers: [{name: c, terminationMessagePath: /dev/termination-log, terminationMessagePolicy: File, imagePullPolicy: Always}]}`,
		"scheduler":   `{nodeSelector: {a: b}, priority: 5, priorityClassName: x, preemptionPolicy: Never, tolerations: [{operator: Exists, tolerationSeconds: 5}], affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: a}]}}, topologySpreadConstraints: [{maxSkew: 1}], evictionResponders: [{name: a.example/b}], schedulingGroup: {podGroupName: a}}`,
		"network":     `{hostNetwork: true, hostname: h, subdomain: s, setHostnameAsFQDN: true, hostAliases: [{ip: 192.0.2.1}], dnsConfig: {searches: [a], options: [{name: ndots, value: "2"}]}, containers: [{ports: [{hostPort: 80, hostIP: 192.0.2.1}]}]}`,
		"namespaces":  `{hostPID: true, hostIPC: true, shareProcessNamespace: true, hostUsers: false}`,
		"volumes":     `{volumes: [{name: a, emptyDir: {}}, {name: b, emptyDir: {medium: Memory, sizeLimit: 1Mi}}, {name: c, hostPath: {path: /x}}, {name: d, hostPath: {path: /x, type: CharDevice}}, {name: e}, {name: f, emptyDir: {sizeLimit: 1Mi}}, {name: i, emptyDir: {medium: HugePages-2Mi}}, {name: g, image: {reference: a}}, {name: h, persistentVolumeClaim: {claimName: a, readOnly: true}}]}`,
		"config":      `{volumes: [{name: a, configMap: {name: a, items: [{key: a, path: b, mode: 256}], optional: true, defaultMode: 420}}, {name: b, secret: {secretName: a}}, {name: c, downwardAPI: {items: [{path: a, fieldRef: {fieldPath: metadata.labels}}]}}]}`,
		"projected":   `{volumes: [{name: a, projected: {sources: [{secret: {name: a}}, {configMap: {name: b}}, {serviceAccountToken: {path: t, audience: a, expirationSeconds: 600}}, {clusterTrustBundle: {name: a, path: b}}, {podCertificate: {signerName: a}}]}}]}`,
		"other kinds": `{volumes: [{name: a, nfs: {server: a, path: /b}}, {name: b, csi: {driver: a}}, {name: c, ephemeral: {}}, {name: d, gcePersistentDisk: {pdName: a}}]}`,
		"mounts":      `{containers: [{volumeMounts: [{name: v, mountPath: /v, subPath: a, mountPropagation: Bidirectional, recursiveReadOnly: Enabled}, {name: v, mountPath: /w, subPathExpr: $(A)}]}]}`,
		"env":         `{containers: [{envFrom: [{prefix: x, secretRef: {name: a}}], env: [{name: A, value: x}, {name: B, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: "metadata.labels['x']"}}}, {name: C, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Mi, containerName: d}}}, {name: D, valueFrom: {secretKeyRef: {name: a, key: b}}}, {name: E, valueFrom: {configMapKeyRef: {name: a, key: b}}}, {name: F, valueFrom: {fileKeyRef: {volumeName: a, path: b, key: c}}}]}]}`,
		"resources":   `{overhead: {cpu: 1}, resources: {limits: {cpu: 1}}, initContainers: [{name: i, resources: {requests: {cpu: 1, memory: 1Gi, ephemeral-storage: 1Gi}, limits: {cpu: 1, memory: 1Gi, hugepages-2Mi: 2Mi, ephemeral-storage: 1Gi, example.com/led: 1}}}]}`,
		"terminal":    `{activeDeadlineSeconds: 5, restartPolicy: Never, containers: [{name: c, stdin: true, stdinOnce: true, tty: true, workingDir: /, command: [a], args: [b]}]}`,
		"probes":      `{readinessGates: [{conditionType: a}], containers: [{livenessProbe: {exec: {command: [a]}}, readinessProbe: {httpGet: {port: 80, host: a, httpHeaders: [{name: a, value: b}]}}, startupProbe: {grpc: {port: 1, service: a}, terminationGracePeriodSeconds: 5}, lifecycle: {preStop: {sleep: {seconds: 5}}, postStart: {httpGet: {port: 1}}, stopSignal: SIGUSR1}}]}`,
		"restarts":    `{initContainers: [{restartPolicy: Always}], containers: [{restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [1]}}, {action: RestartAllContainers}]}]}`,
		"security":    `{securityContext: {runAsUser: 0, fsGroup: 5, fsGroupChangePolicy: OnRootMismatch, supplementalGroups: [1], supplementalGroupsPolicy: Strict, sysctls: [{name: a, value: b}], seccompProfile: {type: RuntimeDefault}, windowsOptions: {runAsUserName: a}}, containers: [{securityContext: {privileged: true, procMount: Unmasked, capabilities: {add: [NET_ADMIN]}, appArmorProfile: {type: Unconfined}, seLinuxOptions: {level: a}}}]}`,
		"debugger":    `{ephemeralContainers: [{name: e, image: i, targetContainerName: a, env: [{name: A}], securityContext: {runAsUser: 5}}]}`,
		"secrets":     `{serviceAccountName: a, automountServiceAccountToken: true, imagePullSecrets: [{name: a}], runtimeClassName: kata}`,
		"OS":          `{os: {name: windows}}`, // Fit refuses it
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
		`{containers: [{env: [{name: A, valueFrom: {fieldRef: {fieldPath: a}}}]}]}`:        {"spec.containers[0].env[0].valueFrom.fieldRef.fieldPath"},
		`{containers: [{env: [{name: A, valueFrom: {resourceFieldRef: {resource: a}}}]}]}`: {"spec.containers[0].env[0].valueFrom.resourceFieldRef.resource"},
		`{containers: [{}, {volumeMounts: [{mountPropagation: Sideways}]}]}`:               {"spec.containers[1].volumeMounts[0].mountPropagation"},
		`{containers: [{volumeMounts: [{bindMountOptions: [noexec]}]}]}`:                   {"spec.containers[0].volumeMounts[0].bindMountOptions"},
		`{containers: [{volumeDevices: [{name: a, devicePath: /dev/a}]}]}`:                 {"spec.containers[0].volumeDevices"},
		`{containers: [{livenessProbe: {httpGet: {port: 1, protocol: H2C}}}]}`:             {"spec.containers[0].livenessProbe.httpGet.protocol"},
		`{containers: [{lifecycle: {preStop: {tcpSocket: {port: 1}}}}]}`:                   {"spec.containers[0].lifecycle.preStop.tcpSocket"},
		`{containers: [{restartPolicyRules: [{action: Dance}]}]}`:                          {"spec.containers[0].restartPolicyRules[0].action"},
		`{initContainers: [{resources: {claims: [{name: a}]}}]}`:                           {"spec.initContainers[0].resources.claims"},
		`{resourceClaims: [{name: a}], schedulingGates: [{name: a}]}`:                      {"spec.schedulingGates", "spec.resourceClaims"},
		`{ephemeralContainers: [{name: e, ports: [{containerPort: 1}], livenessProbe: {periodSeconds: 1}, restartPolicy: Always}]}`: {
			"spec.ephemeralContainers[0].ports", "spec.ephemeralContainers[0].restartPolicy", "spec.ephemeralContainers[0].livenessProbe.periodSeconds"},
		`{volumes: [{name: a, emptyDir: {medium: Tape, mode: 5}}]}`:                                     {"spec.volumes[0].emptyDir.medium", "spec.volumes[0].emptyDir.mode"},
		`{volumes: [{name: a, hostPath: {path: /, type: Banana}}]}`:                                     {"spec.volumes[0].hostPath.type"},
		`{volumes: [{name: a, secret: {items: [{key: a, path: a, user: 5}]}}]}`:                         {"spec.volumes[0].secret.items[0].user"},
		`{volumes: [{name: a, projected: {sources: [{serviceAccountToken: {path: t, user: 5}}]}}]}`:     {"spec.volumes[0].projected.sources[0].serviceAccountToken.user"},
		`{volumes: [{name: a, downwardAPI: {defaultUser: 5}}, {name: b, configMap: {defaultUser: 0}}]}`: {"spec.volumes[0].downwardAPI.defaultUser", "spec.volumes[1].configMap.defaultUser"},
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
	errs := validateFields(reflect.ValueOf(newer{Later: "x"}), field.NewPath("spec"))
	if len(errs) != 1 || errs[0].Field != "spec.later" {
		t.Errorf("got %v", errs)
	}
	if errs := validateFields(reflect.ValueOf(newer{}), field.NewPath("spec")); len(errs) > 0 {
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
	got := strings.Join(fields(Unsupported(p)), " ")
	for name, r := range rulesOf(reflect.TypeFor[v1.PodSpec]()) {
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
