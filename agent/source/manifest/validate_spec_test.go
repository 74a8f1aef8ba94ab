package manifest_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/tinylet/tinylet/agent/source/manifest"
)

// merge lays a YAML text over a document: maps are merged, all else is
// replaced.
func merge(t *testing.T, under any, text string) any {
	t.Helper()
	var over any
	if err := yaml.Unmarshal([]byte(text), &over); err != nil {
		t.Fatal(err)
	}
	var lay func(under, over any) any
	lay = func(under, over any) any {
		a, ok := under.(map[string]any)
		b, also := over.(map[string]any)
		if !ok || !also {
			return over
		}
		for key, value := range b {
			a[key] = lay(a[key], value)
		}
		return a
	}
	return lay(under, over)
}

// plain is a pod with the volume v, and what its spec and its container get
// in addition.
func plain(t *testing.T, spec, container string) []byte {
	t.Helper()
	c := merge(t, map[string]any{"name": "c", "image": "i:1"}, container)
	text, err := yaml.Marshal(merge(t, map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "web"},
		"spec": map[string]any{
			"containers": []any{c},
			"volumes":    []any{map[string]any{"name": "v", "emptyDir": map[string]any{}}},
		},
	}, "{spec: "+spec+"}"))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestValidateContainer(t *testing.T) {
	for container, want := range map[string]string{
		`{env: [{name: A, valueFrom: {secretKeyRef: {name: a, key: b, optional: true}}}, {name: B, valueFrom: {configMapKeyRef: {name: a.b, key: b}}}]}`: "",
		`{env: [{name: A, valueFrom: {secretKeyRef: {key: b}}}]}`:                                                "env[0].valueFrom.secretKeyRef.name: Required",
		`{env: [{name: A, valueFrom: {secretKeyRef: {name: ../a, key: b}}}]}`:                                    "env[0].valueFrom.secretKeyRef.name: Invalid",
		`{env: [{name: A, valueFrom: {configMapKeyRef: {name: a, key: ..}}}]}`:                                   "env[0].valueFrom.configMapKeyRef.key: Invalid",
		`{env: [{name: A, valueFrom: {configMapKeyRef: {name: a}}}]}`:                                            "env[0].valueFrom.configMapKeyRef.key: Required",
		`{env: [{name: A, valueFrom: {}}]}`:                                                                      "env[0].valueFrom: Invalid value: \"\": must specify one of",
		`{env: [{name: A, value: x, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]}`:                        "may not be specified when `value` is not empty",
		`{env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}, secretKeyRef: {name: a, key: a}}}]}`: "may not have more than one field",
		`{env: [{name: A, valueFrom: {fileKeyRef: {volumeName: v, path: a/b, key: K}}}]}`:                        "",
		`{env: [{name: A, valueFrom: {fileKeyRef: {volumeName: v, path: a/../../b, key: K}}}]}`:                  "fileKeyRef.path: Invalid",
		`{env: [{name: A, valueFrom: {fileKeyRef: {volumeName: w, path: a, key: K}}}]}`:                          "fileKeyRef.volumeName: Not found",
		`{env: [{name: A, valueFrom: {fileKeyRef: {volumeName: v, path: a}}}]}`:                                  "fileKeyRef.key: Required",
		`{env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.hugepages-2Mi}}}]}`:                    "",
		`{env: [{name: "A=B"}]}`: "env[0].name: Invalid",
		`{envFrom: [{prefix: A_, configMapRef: {name: a}}, {secretRef: {name: b, optional: true}}]}`: "",
		`{envFrom: [{prefix: A_}]}`:                                    "envFrom[0]: Invalid",
		`{envFrom: [{configMapRef: {name: a}, secretRef: {name: a}}]}`: "envFrom[0]: Invalid",
		`{envFrom: [{secretRef: {}}]}`:                                 "envFrom[0].secretRef.name: Required",
		`{envFrom: [{prefix: "A=", secretRef: {name: a}}]}`:            "envFrom[0].prefix: Invalid",

		`{env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1m}}}]}`:            "",
		`{env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1k}}}]}`:            "divisor: Unsupported",
		`{env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1m}}}]}`:         "divisor: Unsupported",
		`{env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.hugepages-2Mi, divisor: 2Mi}}}]}`: "divisor: Unsupported",
		`{image: " i"}`: "image: Invalid value: \" i\": must not have leading or trailing whitespace",

		`{restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [1]}}]}`: "",
		`{restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [1]}}]}`:                       "restartPolicy: Required",
		`{restartPolicy: Never, restartPolicyRules: [{action: Dance, exitCodes: {operator: In}}]}`:                "restartPolicyRules[0].action: Unsupported",
		`{restartPolicy: Never, restartPolicyRules: [{action: Restart}]}`:                                         "restartPolicyRules[0].exitCodes: Required",
		`{restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: {operator: Of}}]}`:              "exitCodes.operator: Unsupported",
		`{restartPolicy: Sometimes}`: "restartPolicy: Unsupported",
		`{restartPolicy: Never, restartPolicyRules: [` + strings.Repeat(`{action: Restart, exitCodes: {operator: In}},`, 21) + `]}`: "restartPolicyRules: Too many",

		`{volumeMounts: [{name: v, mountPath: /v, subPath: a/b}, {name: v, mountPath: /w, subPathExpr: $(A)/b}]}`:                      "",
		`{volumeMounts: [{name: v, mountPath: /v, subPath: ../b}]}`:                                                                    "subPath: Invalid value: \"../b\": must not contain '..'",
		`{volumeMounts: [{name: v, mountPath: /v, subPath: /b}]}`:                                                                      "subPath: Invalid value: \"/b\": must be a relative path",
		`{volumeMounts: [{name: v, mountPath: /v, subPath: a, subPathExpr: b}]}`:                                                       "subPathExpr: Invalid",
		`{volumeMounts: [{name: v, mountPath: /v, mountPropagation: Bidirectional}]}`:                                                  "mountPropagation: Forbidden",
		`{securityContext: {privileged: true}, volumeMounts: [{name: v, mountPath: /v, mountPropagation: Bidirectional}]}`:             "",
		`{volumeMounts: [{name: v, mountPath: /v, recursiveReadOnly: Enabled}]}`:                                                       "recursiveReadOnly: Forbidden",
		`{volumeMounts: [{name: v, mountPath: /v, readOnly: true, recursiveReadOnly: Enabled}]}`:                                       "",
		`{volumeMounts: [{name: v, mountPath: /v, readOnly: true, recursiveReadOnly: IfPossible, mountPropagation: HostToContainer}]}`: "recursiveReadOnly: Forbidden",
		`{volumeMounts: [{name: v, mountPath: /v, recursiveReadOnly: Maybe}]}`:                                                         "recursiveReadOnly: Unsupported",
		`{volumeDevices: [{name: v}]}`: "volumeDevices[0].devicePath: Required",

		`{resources: {limits: {cpu: 1, example.com/led: 1, hugepages-2Mi: 4Mi}}}`:                                            "",
		`{resources: {limits: {bananas: 1}}}`:                                                                                "resources.limits[bananas]: Invalid",
		`{resources: {limits: {example.com/led: 500m}}}`:                                                                     "must be an integer",
		`{resources: {requests: {example.com/led: 1}}}`:                                                                      "resources.limits[example.com/led]: Required",
		`{resources: {requests: {example.com/led: 1}, limits: {example.com/led: 2}}}`:                                        "must be equal to example.com/led limit of 2",
		`{resources: {limits: {hugepages-2Mi: 4Mi}}}`:                                                                        "resources: Forbidden: HugePages require cpu or memory",
		`{resources: {limits: {cpu: 1, hugepages-2Mi: 3Mi}}}`:                                                                "is not positive integer multiple of",
		`{resources: {limits: {cpu: 1, hugepages-big: 3Mi}}}`:                                                                "is not positive integer multiple of",
		`{resources: {limits: {cpu: 1, hugepages-0: 3Mi}}}`:                                                                  "is not positive integer multiple of",
		`{resources: {limits: {cpu: 1, hugepages-1500m: 2Mi}}}`:                                                              "is not positive integer multiple of",
		`{resources: {requests: {memory: 2Mi}, limits: {memory: 1Mi}}}`:                                                      "requests[memory]: Invalid value: \"2Mi\": must be less than or equal to memory limit of 1Mi",
		`{resources: {claims: [{name: a}]}}`:                                                                                 "resources.claims: Forbidden",
		`{resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}]}`:                                                  "",
		`{resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}, {resourceName: cpu, restartPolicy: NotRequired}]}`: "resizePolicy[1]: Duplicate",
		`{resizePolicy: [{resourceName: disk, restartPolicy: NotRequired}]}`:                                                 "resizePolicy[0].resourceName: Unsupported",

		`{securityContext: {procMount: Unmasked}}`:                                                   "procMount: Invalid value: \"Unmasked\": `hostUsers` must be false",
		`{securityContext: {procMount: Some}}`:                                                       "procMount: Unsupported",
		`{securityContext: {allowPrivilegeEscalation: false, capabilities: {add: [CAP_SYS_ADMIN]}}}`: "allowPrivilegeEscalation: Invalid",
		`{securityContext: {capabilities: {add: ["A\nB"]}}}`:                                         "capabilities.add[0]: Invalid",
		`{securityContext: {seLinuxOptions: {level: "a\nb"}}}`:                                       "seLinuxOptions.level: Invalid",
		`{securityContext: {runAsUser: -1}}`:                                                         "runAsUser: Invalid",
		`{securityContext: {seccompProfile: {type: RuntimeDefault, localhostProfile: a}}}`:           "localhostProfile: Invalid",
		`{securityContext: {seccompProfile: {type: Localhost, localhostProfile: a/../b}}}`:           "localhostProfile: Invalid",
		`{securityContext: {appArmorProfile: {type: Localhost, localhostProfile: " a"}}}`:            "localhostProfile: Invalid",
		`{securityContext: {appArmorProfile: {type: Localhost}}}`:                                    "localhostProfile: Required",
		`{securityContext: {appArmorProfile: {}}}`:                                                   "appArmorProfile.type: Required",

		`{livenessProbe: {httpGet: {port: 80, path: "/a\r\nb"}}}`:                              "httpGet.path: Invalid",
		`{livenessProbe: {httpGet: {port: 80, httpHeaders: [{name: A, value: "x\r\nB: y"}]}}}`: "httpHeaders[0].value: Invalid",
		`{livenessProbe: {tcpSocket: {port: http-too-long-name}}}`:                             "tcpSocket.port: Invalid",
		`{livenessProbe: {grpc: {port: 0}}}`:                                                   "grpc.port: Invalid",
		`{livenessProbe: {terminationGracePeriodSeconds: 0, tcpSocket: {port: 1}}}`:            "terminationGracePeriodSeconds: Invalid value: 0: must be greater than 0",
		`{readinessProbe: {terminationGracePeriodSeconds: 5, tcpSocket: {port: 1}}}`:           "terminationGracePeriodSeconds: Invalid value: 5: must not be set for readinessProbes",
		`{lifecycle: {preStop: {sleep: {seconds: 0}}}}`:                                        "",
		`{lifecycle: {preStop: {sleep: {seconds: 31}}}}`:                                       "must be non-negative and less than terminationGracePeriodSeconds (30)",
		`{lifecycle: {stopSignal: SIGUSR1}}`:                                                   "stopSignal: Forbidden",
		`{workingDir: "/a\nb"}`:                                                                "workingDir: Invalid",
	} {
		t.Run(container, func(t *testing.T) {
			expect(t, plain(t, `{}`, container), want)
		})
	}
}

func TestValidateSpec(t *testing.T) {
	volume := func(source string) string { return `{volumes: [{name: v, ` + source + `}]}` }
	projected := func(sources string) string { return volume(`projected: {sources: [` + sources + `]}`) }
	term := func(term string) string {
		return `{affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [` + term + `]}}}}`
	}
	for spec, want := range map[string]string{
		volume(`secret: {secretName: a, items: [{key: k, path: p/q, mode: 256}]}`): "",
		volume(`secret: {}`):                                                                  "spec.volumes[0].secret.secretName: Required",
		volume(`secret: {secretName: ../a}`):                                                  "secret.secretName: Invalid",
		volume(`secret: {secretName: a, items: [{key: k, path: ../p}]}`):                      "secret.items[0].path: Invalid",
		volume(`secret: {secretName: a, items: [{key: k, path: ..p}]}`):                       "must not start with '..'",
		volume(`secret: {secretName: a, items: [{key: k, path: /p}]}`):                        "must be a relative path",
		volume(`secret: {secretName: a, items: [{path: p}]}`):                                 "items[0].key: Required",
		volume(`secret: {secretName: a, items: [{key: k, path: p, mode: 512}]}`):              "items[0].mode: Invalid",
		volume(`configMap: {name: a, defaultMode: 511}`):                                      "",
		volume(`configMap: {}`):                                                               "configMap.name: Required",
		volume(`configMap: {name: a, defaultMode: -1}`):                                       "configMap.defaultMode: Invalid",
		volume(`persistentVolumeClaim: {claimName: a}`):                                       "",
		volume(`persistentVolumeClaim: {}`):                                                   "persistentVolumeClaim.claimName: Required",
		volume(`downwardAPI: {items: [{path: a, resourceFieldRef: {resource: limits.cpu}}]}`): "resourceFieldRef.containerName: Required",
		volume(`downwardAPI: {items: [{path: a}]}`):                                           "downwardAPI.items[0]: Required",
		volume(`nfs: {server: a, path: /b}`):                                                  "", // it waits on the node
		volume(`csi: {driver: a}`):                                                            "",
		volume(`image: {reference: a, pullPolicy: Sometimes}`):                                "image.pullPolicy: Unsupported",
		volume(`emptyDir: {}, hostPath: {path: /a}`):                                          "may not specify more than 1 volume type",

		projected(`{secret: {name: a}}, {configMap: {name: a}}, {downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}`): "",
		projected(`{serviceAccountToken: {path: t}}`):                                                                                        "",
		projected(`{serviceAccountToken: {path: t, expirationSeconds: 599}}`):                                                                "may not specify a duration less than 10 minutes",
		projected(`{serviceAccountToken: {path: t, expirationSeconds: 4294967297}}`):                                                         "may not specify a duration larger than 2^32 seconds",
		projected(`{serviceAccountToken: {}}`):                                                                                               "serviceAccountToken.path: Required",
		projected(`{secret: {name: a}, configMap: {name: b}}`):                                                                               "may not specify more than 1 volume type per source",
		projected(`{secret: {}}`):                                                                                                            "secret.name: Required",
		projected(`{secret: {name: a, items: [{key: k, path: p}]}}, {configMap: {name: a, items: [{key: k, path: p}]}}`):                     "conflicting duplicate paths",
		projected(`{secret: {name: a, items: [{key: k, path: ./p}]}}, {serviceAccountToken: {path: p}}`):                                     "conflicting duplicate paths",
		projected(`{secret: {name: a, items: [{key: k, path: p/q}, {key: l, path: p-r}]}}, {serviceAccountToken: {path: p}}`):                "conflicting duplicate paths",
		projected(`{secret: {name: a, items: [{key: k, path: p/q}, {key: l, path: p/r}]}}, {serviceAccountToken: {path: pq}}`):               "",
		projected(`{clusterTrustBundle: {name: a, path: p}}`):                                                                                "",
		projected(`{clusterTrustBundle: {name: "example.com:a:b", path: p}}`):                                                                "",
		projected(`{clusterTrustBundle: {signerName: example.com/a, labelSelector: {matchLabels: {a: b}}, path: p}}`):                        "",
		projected(`{clusterTrustBundle: {path: p}}`):                                                                                         "either name or signerName must be specified",
		projected(`{clusterTrustBundle: {name: a, signerName: example.com/a, path: p}}`):                                                     "only one of name and signerName may be used",
		projected(`{clusterTrustBundle: {name: a, labelSelector: {}, path: p}}`):                                                             "labelSelector must be unset",
		projected(`{clusterTrustBundle: {signerName: a, path: p}}`):                                                                          "signerName: Invalid",
		projected(`{clusterTrustBundle: {signerName: example.com/a, labelSelector: {matchExpressions: [{key: a, operator: Of}]}, path: p}}`): "labelSelector: Invalid",
		projected(`{clusterTrustBundle: {name: a}}`):                                                                                         "clusterTrustBundle.path: Required",
		projected(`{podCertificate: {signerName: a}}`):                                                                                       "",

		`{hostUsers: false, containers: [{name: c, image: i, securityContext: {procMount: Unmasked}}]}`: "",
		`{hostUsers: false, hostNetwork: true}`:                                                         "spec.hostNetwork: Forbidden: when `hostUsers` is false",
		`{hostUsers: false, hostPID: true}`:                                                             "spec.hostPID: Forbidden",
		`{hostUsers: false, hostIPC: true}`:                                                             "spec.hostIPC: Forbidden",
		`{hostUsers: true, hostPID: true, hostIPC: true}`:                                               "",
		`{shareProcessNamespace: true, hostPID: true}`:                                                  "spec.shareProcessNamespace: Invalid",
		`{securityContext: {sysctls: [{name: kernel/shm_rmid_forced, value: "1"}]}}`:                    "",
		`{securityContext: {sysctls: [{name: a, value: "1"}, {name: a, value: "2"}]}}`:                  "sysctls[1].name: Duplicate",
		`{securityContext: {sysctls: [{value: "1"}]}}`:                                                  "sysctls[0].name: Required",
		`{securityContext: {sysctls: [{name: "../a"}]}}`:                                                "sysctls[0].name: Invalid",
		`{securityContext: {sysctls: [{name: A.b}]}}`:                                                   "sysctls[0].name: Invalid",
		`{hostNetwork: true, securityContext: {sysctls: [{name: net.a}]}}`:                              "may not be specified when 'hostNetwork' is true",
		`{hostIPC: true, securityContext: {sysctls: [{name: kernel.sem}]}}`:                             "may not be specified when 'hostIPC' is true",
		`{securityContext: {supplementalGroupsPolicy: Some}}`:                                           "supplementalGroupsPolicy: Unsupported",
		`{securityContext: {fsGroupChangePolicy: Some}}`:                                                "fsGroupChangePolicy: Unsupported",
		`{securityContext: {seLinuxChangePolicy: Some}}`:                                                "seLinuxChangePolicy: Unsupported",
		`{os: {name: linux}, securityContext: {windowsOptions: {runAsUserName: a}}}`:                    "windowsOptions: Forbidden",
		`{os: {name: windows}}`:                                                                         "", // the node refuses it
		`{os: {name: plan9}}`:                                                                           "spec.os.name: Unsupported",
		`{os: {name: linux}, containers: [{name: c, image: i, lifecycle: {stopSignal: SIGRTMIN+3}}]}`:   "",
		`{os: {name: linux}, containers: [{name: c, image: i, lifecycle: {stopSignal: TERM}}]}`:         "stopSignal: Invalid",

		`{os: {name: linux}, containers: [{name: c, image: i, lifecycle: {stopSignal: SIGRTMAX-14}}]}`: "",
		`{os: {name: linux}, containers: [{name: c, image: i, lifecycle: {stopSignal: SIGRTMAX-15}}]}`: "stopSignal: Invalid",
		`{os: {name: linux}, containers: [{name: c, image: i, lifecycle: {stopSignal: SIGRTMIN+03}}]}`: "stopSignal: Invalid",
		`{os: {name: linux}, containers: [{name: c, image: i, lifecycle: {stopSignal: SIGFOO}}]}`:      "stopSignal: Invalid",
		`{os: {name: windows}, containers: [{name: c, image: i, lifecycle: {stopSignal: CTRL_C}}]}`:    "", // the node refuses it

		`{initContainers: [{name: d, image: i, ports: [{containerPort: 80, hostPort: 80}, {containerPort: 81, hostPort: 80}]}]}`:                               "spec.initContainers[0].ports[1].hostPort: Duplicate",
		`{initContainers: [{name: d, image: i, ports: [{containerPort: 80, hostPort: 80}]}, {name: e, image: i, ports: [{containerPort: 80, hostPort: 80}]}]}`: "",
		`{initContainers: [{name: d, image: i, resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}]}]}`:                                     "must not be set to 'RestartContainer' for non-sidecar initContainers",
		`{initContainers: [{name: d, image: i, restartPolicy: Always, resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}]}]}`:              "",
		`{hostNetwork: true, initContainers: [{name: d, image: i, ports: [{containerPort: 80, hostPort: 81}]}]}`:                                               "",
		`{hostAliases: [{ip: "fe80::1%\n10.0.0.1"}]}`:                   "spec.hostAliases[0].ip: Invalid",
		`{hostAliases: [{ip: "fe80::1%eth0"}]}`:                         "spec.hostAliases[0].ip: Invalid",
		`{hostAliases: [{ip: "::ffff:10.0.0.1"}]}`:                      "spec.hostAliases[0].ip: Invalid",
		`{dnsConfig: {nameservers: ["fe80::1%\nnameserver 10.0.0.1"]}}`: "spec.dnsConfig.nameservers[0]: Invalid",
		`{overhead: {hugepages-2Mi: 2Mi}}`:                              "spec.overhead: Forbidden: HugePages require cpu or memory",
		`{nodeSelector: {requests: release, capacity: 2e}}`:             "",

		`{serviceAccountName: a, imagePullSecrets: [{name: a}, {}]}`: "",
		`{serviceAccount: a}`:                                                "",
		`{serviceAccountName: a/b}`:                                          "spec.serviceAccountName: Invalid",
		`{imagePullSecrets: [{name: ../a}]}`:                                 "spec.imagePullSecrets[0].name: Invalid",
		`{readinessGates: [{conditionType: a b}]}`:                           "readinessGates[0].conditionType: Invalid",
		`{runtimeClassName: a/b}`:                                            "spec.runtimeClassName: Invalid",
		`{priorityClassName: system-node-critical, preemptionPolicy: Never}`: "",
		`{preemptionPolicy: Often}`:                                          "spec.preemptionPolicy: Unsupported",
		`{nodeSelector: {"a b": c}}`:                                         "spec.nodeSelector[a b]: Invalid",
		`{tolerations: [{operator: Exists}, {key: a, value: b, effect: NoExecute, tolerationSeconds: 5}]}`: "",
		`{tolerations: [{}]}`:                                   "spec.tolerations[0].operator: Invalid",
		`{tolerations: [{key: a, operator: Near}]}`:             "spec.tolerations[0].operator: Unsupported",
		`{tolerations: [{key: a, operator: Exists, value: b}]}`: "value must be empty when `operator` is 'Exists'",
		`{tolerations: [{key: a, tolerationSeconds: 5}]}`:       "effect must be 'NoExecute'",
		term(`{matchExpressions: [{key: a, operator: In, values: [b]}, {key: a, operator: Gt, values: ["5"]}], matchFields: [{key: metadata.name, operator: In, values: [b]}]}`): "",
		term(``): "nodeSelectorTerms: Required",
		term(`{matchExpressions: [{key: a, operator: In}]}`):                     "values: Required",
		term(`{matchExpressions: [{key: a, operator: Exists, values: [b]}]}`):    "values: Forbidden",
		term(`{matchExpressions: [{key: a, operator: Gt, values: [b]}]}`):        "values[0]: Invalid",
		term(`{matchExpressions: [{key: a, operator: Near}]}`):                   "operator: Invalid",
		term(`{matchFields: [{key: metadata.uid, operator: In, values: [b]}]}`):  "key: Invalid",
		term(`{matchFields: [{key: metadata.name, operator: Exists}]}`):          "operator: Invalid",
		term(`{matchFields: [{key: metadata.name, operator: In, values: [A]}]}`): "values[0]: Invalid",

		`{resources: {requests: {cpu: 1}, limits: {cpu: 2}}}`:                                                                      "",
		`{resources: {limits: {ephemeral-storage: 1Gi}}}`:                                                                          "spec.resources.limits[ephemeral-storage]: Invalid",
		`{resources: {claims: [{name: a}]}}`:                                                                                       "claims may not be set for Resources at pod-level",
		`{resources: {requests: {cpu: 1}}, containers: [{name: c, image: i, resources: {requests: {cpu: 2}}}]}`:                    "must be greater than or equal to aggregate container requests of 2",
		`{resources: {limits: {cpu: 1}}, containers: [{name: c, image: i, resources: {requests: {cpu: 500m}, limits: {cpu: 2}}}]}`: "must be less than or equal to pod limits of 1",
		`{dnsPolicy: None}`: "must provide at least one DNS nameserver",
		`{dnsConfig: {searches: [` + strings.Repeat(strings.Repeat("a", 60)+"."+strings.Repeat("b", 60)+",", 20) + `]}}`: "spec.dnsConfig.searches: Too long",
	} {
		t.Run(spec, func(t *testing.T) {
			expect(t, plain(t, spec, `{}`), want)
		})
	}
}

// expect parses one pod that is valid, or of which a part of the problem is
// given.
func expect(t *testing.T, text []byte, want string) {
	t.Helper()
	m := manifest.Parse(text, board)
	if want == "" {
		if len(m.Problems) > 0 || len(m.Pods) != 1 {
			t.Errorf("%d pods, problems %v", len(m.Pods), m.Problems)
		}
		return
	}
	if len(m.Pods) != 0 || len(m.Problems) != 1 || m.Problems[0].Warning {
		t.Fatalf("%d pods, problems %v", len(m.Pods), m.Problems)
	}
	if got := m.Problems[0].Err.Error(); !strings.Contains(got, want) {
		t.Errorf("problem %q, want %q in it", got, want)
	}
}

func TestAppArmorAnnotation(t *testing.T) {
	for _, tt := range []struct{ value, container, want string }{
		{"runtime/default", `{}`, ""},
		{"localhost/a", `{}`, ""},
		{"unconfined", `{securityContext: {appArmorProfile: {type: Unconfined}}}`, ""},
		{"localhost/a", `{securityContext: {appArmorProfile: {type: Localhost, localhostProfile: a}}}`, ""},
		{"localhost/a", `{securityContext: {appArmorProfile: {type: Localhost, localhostProfile: b}}}`, "must match"},
		{"unconfined", `{securityContext: {appArmorProfile: {type: RuntimeDefault}}}`, "must match"},
		{"strange", `{}`, "invalid AppArmor profile name"},
		{`""`, `{}`, ""},
		{`""`, `{securityContext: {appArmorProfile: {type: Localhost}}}`, "must match"},
		{"unconfined", `{name: d}`, "container not found"},
	} {
		t.Run(tt.value+" "+tt.container, func(t *testing.T) {
			text := merge(t, nil, string(plain(t, `{}`, tt.container)))
			text = merge(t, text, `{metadata: {annotations: {container.apparmor.security.beta.kubernetes.io/c: `+tt.value+`}}}`)
			data, err := yaml.Marshal(text)
			if err != nil {
				t.Fatal(err)
			}
			expect(t, data, tt.want)
		})
	}
}

// TestNamesLikeQuantities checks that labels and annotations may have the names of
// fields with quantities.
func TestNamesLikeQuantities(t *testing.T) {
	for _, metadata := range []string{
		`{labels: {capacity: medium, limits: 1e500}}`,
		`{annotations: {requests: "2 CPUs are enough for this pod, also when every request arrives at once"}}`,
	} {
		data, err := yaml.Marshal(merge(t, merge(t, nil, string(plain(t, `{}`, `{}`))), `{metadata: `+metadata+`}`))
		if err != nil {
			t.Fatal(err)
		}
		expect(t, data, "")
	}
}

func TestPullPolicy(t *testing.T) {
	for image, want := range map[string]v1.PullPolicy{
		"a":                                   v1.PullAlways,
		"a:latest":                            v1.PullAlways,
		"a:1":                                 v1.PullIfNotPresent,
		"example.com:5000/a":                  v1.PullAlways,
		"a@sha256:" + strings.Repeat("0", 64): v1.PullIfNotPresent,
		"a:latest@sha256:" + strings.Repeat("0", 64): v1.PullAlways,
		strings.Repeat("0", 64):                      v1.PullIfNotPresent, // an ID
		"A":                                          v1.PullIfNotPresent, // no image can have the name
		"a::latest":                                  v1.PullIfNotPresent,
	} {
		p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: image}}}}
		manifest.Default(p)
		if got := p.Spec.Containers[0].ImagePullPolicy; got != want {
			t.Errorf("%s: pull policy %s, want %s", image, got, want)
		}
	}
}

// TestDefaultTwice checks that Default is idempotent.
func TestDefaultTwice(t *testing.T) {
	for _, spec := range []string{
		`{}`,
		`{serviceAccount: a, resources: {limits: {cpu: 1}}, hostNetwork: true, containers: [{name: c, image: i, ports: [{containerPort: 80}], resources: {limits: {memory: 1Mi, hugepages-2Mi: 2Mi}}}]}`,
		`{volumes: [{name: v}, {name: w, projected: {sources: [{serviceAccountToken: {path: a}}]}}, {name: x, image: {reference: a}}]}`,
	} {
		m := manifest.Parse(plain(t, spec, `{}`), board)
		if len(m.Pods) != 1 {
			t.Fatalf("problems %v", m.Problems)
		}
		again := m.Pods[0].DeepCopy()
		manifest.Default(again)
		if d := cmp.Diff(m.Pods[0], again); d != "" {
			t.Errorf("-once +twice:\n%s", d)
		}
	}
	p := manifest.Parse(plain(t, `{serviceAccount: a, resources: {limits: {cpu: 1}}, containers: [{name: c, image: i, resources: {limits: {memory: 1Mi, hugepages-2Mi: 2Mi}}}]}`, `{}`), board).Pods[0]
	if p.Spec.ServiceAccountName != "a" {
		t.Errorf("service account %q", p.Spec.ServiceAccountName)
	}
	huge := p.Spec.Resources.Limits["hugepages-2Mi"]
	asked := p.Spec.Resources.Requests["hugepages-2Mi"]
	if huge.String() != "2Mi" || asked.String() != "2Mi" {
		t.Errorf("huge pages of the pod: limit %s, request %s", huge.String(), asked.String())
	}
}
