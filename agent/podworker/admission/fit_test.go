package admission

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/randfill"

	"github.com/tinylet/tinylet/agent/node/nodeinfo"
)

func testNode() *nodeinfo.Admission {
	return &nodeinfo.Admission{
		Name: "board", OS: "linux", Arch: "arm64", MaxPods: 3, Kernel: "6.12.41-v8+", AppArmor: true,
		Labels:               map[string]string{"zone": "attic", "level": "7"},
		AllowedUnsafeSysctls: []string{"kernel.msg*", "net/core/somaxconn"},
		Allocatable: v1.ResourceList{
			v1.ResourceCPU:              resource.MustParse("2"),
			v1.ResourceMemory:           resource.MustParse("400Mi"),
			v1.ResourceEphemeralStorage: resource.MustParse("1Gi"),
			"hugepages-2Mi":             resource.MustParse("4Mi"),
			"example.com/led":           resource.MustParse("2"),
		},
	}
}

// fromFile makes a pod static.
const fromFile = `annotations: {kubernetes.io/config.source: file}`

func fitPod(t *testing.T, uid, metadata, spec string) *v1.Pod {
	t.Helper()
	return parse(t, fmt.Sprintf("{metadata: {name: %s, uid: %s, %s}, spec: %s}", uid, uid, metadata, spec))
}

// unconfirmed makes a node without a confirmed Node object, and applies also.
func unconfirmed(also func(*nodeinfo.Admission)) func(*nodeinfo.Admission) {
	return func(n *nodeinfo.Admission) {
		n.Unconfirmed = true
		if also != nil {
			also(n)
		}
	}
}

func requests(list string) string {
	return "{containers: [{resources: {requests: {" + list + "}}}]}"
}

// ownPorts gives the node those of an agent.
func ownPorts(n *nodeinfo.Admission) { n.AgentPorts = []uint16{10248, 10250} }

func TestFit(t *testing.T) {
	const noRoom = "Node didn't have enough resource: "
	for _, tt := range []struct {
		name           string
		node           func(*nodeinfo.Admission)
		metadata, spec string
		others         []string // specs
		reason         string
		message        string
	}{
		{name: "nothing asked", spec: "{}"},
		{name: "all of it", spec: requests(`cpu: 2, memory: 400Mi, ephemeral-storage: 1Gi, hugepages-2Mi: 4Mi, example.com/led: 2`)},
		{name: "labels not confirmed", node: unconfirmed(nil), spec: "{nodeSelector: {zone: cellar}, containers: []}"},
		{name: "taints not confirmed", node: unconfirmed(func(n *nodeinfo.Admission) { n.Taints = []v1.Taint{{Key: "k", Effect: v1.TaintEffectNoSchedule}} }), spec: "{containers: []}"},
		{name: "labels not confirmed, static pod", node: unconfirmed(nil), metadata: fromFile, spec: "{nodeSelector: {zone: cellar}, containers: []}",
			reason: "NodeAffinity", message: "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"},
		{name: "cpu", spec: requests("cpu: 2001m"), reason: "OutOfcpu", message: noRoom + "cpu, requested: 2001, used: 0, capacity: 2000"},
		{name: "cpu beside others", spec: requests("cpu: 1"), others: []string{requests("cpu: 600m"), requests("cpu: 600m")},
			reason: "OutOfcpu", message: noRoom + "cpu, requested: 1000, used: 1200, capacity: 2000"},
		{name: "memory", spec: requests("memory: 1Gi, cpu: 1"), reason: "OutOfmemory", message: noRoom + "memory, requested: 1073741824, used: 0, capacity: 419430400"},
		{name: "the first of two", spec: requests("memory: 1Gi, cpu: 5"), reason: "OutOfcpu", message: noRoom + "cpu, requested: 5000, used: 0, capacity: 2000"},
		{name: "local storage", spec: requests("ephemeral-storage: 2Gi"), reason: "OutOfephemeral-storage", message: noRoom + "ephemeral-storage, requested: 2147483648, used: 0, capacity: 1073741824"},
		{name: "huge pages", spec: requests("hugepages-2Mi: 6Mi"), reason: "OutOfhugepages-2Mi", message: noRoom + "hugepages-2Mi, requested: 6291456, used: 0, capacity: 4194304"},
		{name: "huge pages of a size that it has none of", spec: requests("hugepages-1Gi: 1Gi"), reason: "OutOfhugepages-1Gi", message: noRoom + "hugepages-1Gi, requested: 1073741824, used: 0, capacity: 0"},
		{name: "pods", spec: "{}", others: []string{"{}", "{}", "{}"}, reason: "OutOfpods", message: noRoom + "pods, requested: 1, used: 3, capacity: 3"},
		{name: "an extended resource", spec: requests("example.com/led: 2"), others: []string{requests("example.com/led: 1")},
			reason: "OutOfexample.com/led", message: noRoom + "example.com/led, requested: 2, used: 1, capacity: 2"},
		{name: "a resource of the cluster", spec: requests("example.com/license: 1")},
		{name: "a name without a domain", spec: requests("bananas: 9")},
		{name: "too much for any number", spec: requests("memory: 20E, cpu: 20E"), reason: "OutOfcpu"},
		{name: "overflow by others", spec: requests("memory: 1"), others: []string{requests("memory: 20E"), requests("memory: 20E")}, reason: "OutOfmemory"},
		{name: "overhead", spec: `{overhead: {cpu: 500m}, containers: [{resources: {requests: {cpu: 1600m}}}]}`, reason: "OutOfcpu", message: noRoom + "cpu, requested: 2100, used: 0, capacity: 2000"},
		{name: "the pod's own request", spec: `{resources: {requests: {cpu: 3}}, containers: [{resources: {requests: {cpu: 1}}}]}`, reason: "OutOfcpu", message: noRoom + "cpu, requested: 3000, used: 0, capacity: 2000"},
		{name: "init containers one by one", spec: `{initContainers: [{resources: {requests: {cpu: 2}}}, {resources: {requests: {cpu: 2}}}], containers: [{resources: {requests: {cpu: 1}}}]}`},
		{name: "sidecar beside init container", spec: `{initContainers: [{restartPolicy: Always, resources: {requests: {cpu: 1}}}, {resources: {requests: {cpu: 1500m}}}]}`, reason: "OutOfcpu", message: noRoom + "cpu, requested: 2500, used: 0, capacity: 2000"},
		{name: "sidecar beside containers", spec: `{initContainers: [{resources: {requests: {cpu: 1}}}, {restartPolicy: Always, resources: {requests: {cpu: 1500m}}}], containers: [{resources: {requests: {cpu: 1}}}]}`, reason: "OutOfcpu", message: noRoom + "cpu, requested: 2500, used: 0, capacity: 2000"},

		{name: "selector", spec: `{nodeSelector: {zone: attic, kubernetes.io/arch: arm64, kubernetes.io/hostname: board, kubernetes.io/os: linux}}`},
		{name: "selector of another node", spec: `{nodeSelector: {zone: cellar}}`, reason: "NodeAffinity", message: "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"},
		{name: "selector of no label", spec: `{nodeSelector: {none: ""}}`, reason: "NodeAffinity"},
		{name: "node's name", spec: `{nodeName: board}`},
		{name: "name of another node", spec: `{nodeName: desk}`, reason: "NodeName", message: "Predicate NodeName failed: node(s) didn't match the requested node name"},
		{name: "ports", spec: `{containers: [{ports: [{hostPort: 80}]}]}`, others: []string{`{containers: [{ports: [{hostPort: 80, protocol: UDP}, {containerPort: 80}]}]}`}},
		{name: "ports that are taken", spec: `{containers: [{ports: [{hostPort: 80, protocol: TCP}]}]}`, others: []string{`{containers: [{ports: [{hostPort: 80, hostIP: 192.0.2.1}]}]}`},
			reason: "NodePorts", message: "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"},
		{name: "ports of two addresses", spec: `{containers: [{ports: [{hostPort: 80, hostIP: 192.0.2.2}]}]}`, others: []string{`{containers: [{ports: [{hostPort: 80, hostIP: 192.0.2.1}]}]}`}},
		{name: "port of a sidecar", spec: `{initContainers: [{restartPolicy: Always, ports: [{hostPort: 80}]}]}`, others: []string{`{containers: [{ports: [{hostPort: 80}]}]}`}, reason: "NodePorts"},
		{name: "port of an init container", spec: `{initContainers: [{ports: [{hostPort: 80}]}]}`, others: []string{`{containers: [{ports: [{hostPort: 80}]}]}`}},

		{name: "a port of the agent", node: ownPorts, spec: `{containers: [{ports: [{hostPort: 80}, {hostPort: 10250}]}]}`,
			reason: "NodePorts", message: "Predicate NodePorts failed: host port 10250 is in use by the node agent: give the pod another hostPort"},
		{name: "a port of the agent, on one address", node: ownPorts, spec: `{containers: [{ports: [{hostPort: 10248, hostIP: 127.0.0.1, protocol: TCP}]}]}`, reason: "NodePorts"},
		{name: "a port of the agent, of a sidecar", node: ownPorts, spec: `{initContainers: [{restartPolicy: Always, ports: [{hostPort: 10250}]}]}`, reason: "NodePorts"},
		{name: "a port of the agent, of another protocol", node: ownPorts, spec: `{containers: [{ports: [{hostPort: 10250, protocol: UDP}]}]}`},
		{name: "a port of the agent in the pod alone", node: ownPorts, spec: `{containers: [{ports: [{containerPort: 10250}]}]}`},
		{name: "a port of the agent on the host's network", node: ownPorts, spec: `{hostNetwork: true, containers: [{ports: [{hostPort: 10250, containerPort: 10250}]}]}`},

		{name: "taint", node: taint("k", "v", v1.TaintEffectNoExecute), spec: `{tolerations: [{key: k, value: x}, {key: j, operator: Exists}, {key: k, operator: Gt, value: "1"}]}`,
			reason: "TaintToleration", message: "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate"},
		{name: "taint that is tolerated", node: taint("k", "v", v1.TaintEffectNoExecute), spec: `{tolerations: [{key: k, value: v, effect: NoExecute}]}`},
		{name: "taint that all tolerate", node: taint("k", "v", v1.TaintEffectNoExecute), spec: `{tolerations: [{operator: Exists}]}`},
		{name: "taint tolerated for another effect", node: taint("k", "v", v1.TaintEffectNoExecute), spec: `{tolerations: [{operator: Exists, effect: NoSchedule}]}`, reason: "TaintToleration"},
		{name: "taint for the scheduler", node: taint("k", "v", v1.TaintEffectNoSchedule), spec: `{}`},
		{name: "taint and a static pod", node: taint("k", "v", v1.TaintEffectNoExecute), metadata: fromFile, spec: `{}`},

		{name: "OS", spec: `{os: {name: linux}}`},
		{name: "another OS", spec: `{os: {name: windows}}`, reason: "PodOSNotSupported", message: "Failed to admit pod as the OS field doesn't match node OS"},
		{name: "label of another OS", metadata: `labels: {kubernetes.io/os: windows}`, spec: `{}`, reason: "PodOSSelectorNodeLabelDoesNotMatch", message: "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"},
		{name: "strict groups", spec: `{securityContext: {supplementalGroupsPolicy: Strict}}`},
		{name: "strict groups that the runtime does not know", node: func(n *nodeinfo.Admission) { n.NoStrictSupplementalGroups = true }, spec: `{securityContext: {supplementalGroupsPolicy: Strict}}`,
			reason: "SupplementalGroupsPolicyNotSupported", message: "SupplementalGroupsPolicy=Strict is not supported in this node"},
		{name: "merged groups", node: func(n *nodeinfo.Admission) { n.NoStrictSupplementalGroups = true }, spec: `{securityContext: {supplementalGroupsPolicy: Merge}}`},
		{name: "user namespace", spec: `{hostUsers: false}`},
		{name: "user namespace on the host's network", spec: `{hostUsers: false, hostNetwork: true}`, reason: "PodFeatureUnsupported", message: "Pod requires node features that are not available: UserNamespacesHostNetworkSupport"},

		{name: "AppArmor", spec: `{securityContext: {appArmorProfile: {type: RuntimeDefault}}}`},
		{name: "AppArmor that the kernel has not", node: noAppArmor, spec: `{containers: [{securityContext: {appArmorProfile: {type: Localhost, localhostProfile: a}}}]}`, reason: "AppArmor", message: "Cannot enforce AppArmor: AppArmor is not enabled on the host"},
		{name: "AppArmor by annotation", node: noAppArmor, metadata: `annotations: {container.apparmor.security.beta.kubernetes.io/c: runtime/default}`, spec: `{}`, reason: "AppArmor"},
		{name: "AppArmor unconfined", node: noAppArmor, metadata: `annotations: {container.apparmor.security.beta.kubernetes.io/c: unconfined}`, spec: `{securityContext: {appArmorProfile: {type: Unconfined}}}`},
		{name: "AppArmor without a name", spec: `{initContainers: [{securityContext: {appArmorProfile: {type: Localhost}}}]}`, reason: "AppArmor", message: "Cannot enforce AppArmor: invalid empty AppArmor profile name"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			node := testNode()
			if tt.node != nil {
				tt.node(node)
			}
			p := fitPod(t, "new", tt.metadata, tt.spec)
			others := []*v1.Pod{p} // itself does not count
			for i, spec := range tt.others {
				others = append(others, fitPod(t, fmt.Sprintf("old%d", i), "", spec))
			}
			got := Fit(p, node, others)
			if got == nil {
				got = &Rejection{}
			}
			if got.Reason != tt.reason || (tt.message != "" && got.Message != tt.message) || len(got.Preempt) > 0 {
				t.Errorf("got %+v, want %s: %s", *got, tt.reason, tt.message)
			}
		})
	}
	if got := Fit(&v1.Pod{}, nil, nil); got == nil || got.Reason != "InvalidNodeInfo" {
		t.Errorf("no node: %+v", got)
	}
}

func taint(key, value string, effect v1.TaintEffect) func(*nodeinfo.Admission) {
	return func(n *nodeinfo.Admission) {
		n.Taints = []v1.Taint{{Key: "other", Effect: v1.TaintEffectPreferNoSchedule}, {Key: key, Value: value, Effect: effect}}
	}
}

func noAppArmor(n *nodeinfo.Admission) { n.AppArmor = false }

// TestNodeAffinity is about one required term.
func TestNodeAffinity(t *testing.T) {
	for term, want := range map[string]bool{
		`{matchExpressions: [{key: zone, operator: In, values: [cellar, attic]}]}`:                                      true,
		`{matchExpressions: [{key: zone, operator: In, values: [cellar]}]}`:                                             false,
		`{matchExpressions: [{key: zone, operator: In, values: []}]}`:                                                   false,
		`{matchExpressions: [{key: zone, operator: NotIn, values: [cellar]}]}`:                                          true,
		`{matchExpressions: [{key: none, operator: NotIn, values: [cellar]}]}`:                                          true,
		`{matchExpressions: [{key: zone, operator: NotIn, values: [attic]}]}`:                                           false,
		`{matchExpressions: [{key: zone, operator: Exists}]}`:                                                           true,
		`{matchExpressions: [{key: none, operator: Exists}]}`:                                                           false,
		`{matchExpressions: [{key: zone, operator: Exists, values: [attic]}]}`:                                          false,
		`{matchExpressions: [{key: none, operator: DoesNotExist}]}`:                                                     true,
		`{matchExpressions: [{key: zone, operator: DoesNotExist}]}`:                                                     false,
		`{matchExpressions: [{key: level, operator: Gt, values: ["6"]}]}`:                                               true,
		`{matchExpressions: [{key: level, operator: Gt, values: ["7"]}]}`:                                               false,
		`{matchExpressions: [{key: level, operator: Lt, values: ["8"]}]}`:                                               true,
		`{matchExpressions: [{key: none, operator: Lt, values: ["8"]}]}`:                                                false,
		`{matchExpressions: [{key: zone, operator: Lt, values: ["8"]}]}`:                                                false,
		`{matchExpressions: [{key: level, operator: Near, values: ["8"]}]}`:                                             false,
		`{matchExpressions: [{key: "a b", operator: DoesNotExist}]}`:                                                    false,
		`{matchExpressions: [{key: kubernetes.io/arch, operator: In, values: [arm64]}, {key: none, operator: Exists}]}`: false,
		`{matchFields: [{key: metadata.name, operator: In, values: [board]}]}`:                                          true,
		`{matchFields: [{key: metadata.name, operator: In, values: [desk]}]}`:                                           false,
		`{matchFields: [{key: metadata.name, operator: In, values: [board, desk]}]}`:                                    false,
		`{matchFields: [{key: metadata.name, operator: NotIn, values: [desk]}]}`:                                        true,
		`{matchFields: [{key: metadata.name, operator: Exists}]}`:                                                       false,
		`{matchFields: [{key: metadata.uid, operator: In, values: [a]}]}`:                                               false,
		`{}`: false,
	} {
		t.Run(term, func(t *testing.T) {
			for _, second := range []string{"", ", {}"} { // an empty term matches nothing
				p := fitPod(t, "new", "", `{affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [`+term+second+`]}}}}`)
				if got := Fit(p, testNode(), nil) == nil; got != want {
					t.Errorf("admitted %v, want %v", got, want)
				}
			}
		})
	}
	p := fitPod(t, "new", "", `{affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchFields: [{key: a}]}, {matchExpressions: [{key: zone, operator: Exists}]}]}}}}`)
	if r := Fit(p, testNode(), nil); r != nil {
		t.Errorf("one of two terms matches: %+v", r)
	}
}

func TestSysctls(t *testing.T) {
	for _, tt := range []struct{ name, host, kernel, want string }{
		{"kernel.shm_rmid_forced", "", "", ""},
		{"kernel/shm_rmid_forced", "", "", ""},
		{"net.ipv4.ip_local_port_range", "", "", ""},
		{"net.ipv4.tcp_rmem", "", "", ""},
		{"net.ipv4.tcp_rmem", "", "4.14.9", `"net.ipv4.tcp_rmem" not allowlisted`},
		{"net.ipv4.tcp_rmem", "", "4.15.0-rc1", ""},
		{"net.ipv4.tcp_rmem", "", "10.0", ""},
		{"net.ipv4.tcp_rmem", "", "strange", `"net.ipv4.tcp_rmem" not allowlisted`},
		{"net.ipv4.tcp_syncookies", "", "strange", ""},
		{"net.ipv4.tcp_syncookies", "hostNetwork", "", `"net.ipv4.tcp_syncookies" not allowed with host Net enabled`},
		{"net.ipv4.tcp_syncookies", "hostIPC", "", ""},
		{"kernel.shm_rmid_forced", "hostIPC", "", `"kernel.shm_rmid_forced" not allowed with host IPC enabled`},
		{"kernel.msgmax", "", "", ""},
		{"kernel.msgmax", "hostIPC", "", `"kernel.msgmax" not allowed with host IPC enabled`},
		{"net.core.somaxconn", "", "", ""},
		{"net.core.somaxconn", "hostNetwork", "", `"net.core.somaxconn" not allowed with host Net enabled`},
		{"net.core.somaxconn.x", "", "", `"net.core.somaxconn.x" not allowlisted`},
		{"net.ipv4.ip_local_port_range.a", "", "", `"net.ipv4.ip_local_port_range.a" not allowlisted`},
		{"vm.swappiness", "", "", `"vm.swappiness" not allowlisted`},
		{"foo", "", "", `"foo" not allowlisted`},
	} {
		t.Run(tt.name+" "+tt.host+" "+tt.kernel, func(t *testing.T) {
			spec := `{securityContext: {sysctls: [{name: kernel.sem}, {name: ` + tt.name + `, value: "1"}]}`
			if tt.host != "" {
				spec += ", " + tt.host + ": true"
			}
			node := testNode()
			node.AllowedUnsafeSysctls = append(node.AllowedUnsafeSysctls, "vm.*", "kernel.sem")
			if tt.kernel != "" {
				node.Kernel = tt.kernel
			}
			p := fitPod(t, "new", "", spec+"}")
			if tt.host == "hostIPC" {
				p.Spec.SecurityContext.Sysctls = p.Spec.SecurityContext.Sysctls[1:]
			}
			got := ""
			if r := Fit(p, node, nil); r != nil {
				if r.Reason != "SysctlForbidden" {
					t.Errorf("reason %q", r.Reason)
				}
				got = strings.TrimPrefix(r.Message, "forbidden sysctl: ")
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestPreempt(t *testing.T) {
	const system = "{priority: 2000000000, "
	guaranteed := func(cpu string) string {
		return "{containers: [{resources: {requests: {cpu: " + cpu + ", memory: 1Mi}, limits: {cpu: " + cpu + ", memory: 1Mi}}}]}"
	}
	static := func(spec string) string { return "static " + spec }
	for _, tt := range []struct {
		name    string
		static  bool
		spec    string
		others  []string
		reason  string
		message string
		preempt []types.UID
	}{
		{"room enough", true, requests("cpu: 1"), []string{requests("cpu: 1")}, "", "", nil},
		{"not critical", false, requests("cpu: 2"), []string{requests("cpu: 1")}, "OutOfcpu", "", nil},
		{"static", true, requests("cpu: 2"), []string{requests("cpu: 1")}, "OutOfcpu", "", []types.UID{"old0"}},
		{"system", false, system + requests("cpu: 2")[1:], []string{requests("cpu: 1")}, "OutOfcpu", "", []types.UID{"old0"}},
		{"the fewest", true, requests("cpu: 1"), []string{requests("cpu: 500m"), requests("cpu: 500m"), requests("cpu: 1")}, "OutOfpods", "", []types.UID{"old2"}},
		{"the one that fits best", true, requests("cpu: 500m"), []string{requests("cpu: 1"), requests("cpu: 600m")}, "OutOfcpu", "", []types.UID{"old1"}},
		{"Burstable before Guaranteed", true, requests("cpu: 1"), []string{guaranteed("1"), requests("cpu: 1")}, "OutOfcpu", "", []types.UID{"old1"}},
		{"both where one is not enough", true, requests("cpu: 2"), []string{guaranteed("1"), requests("cpu: 1")}, "OutOfcpu", "", []types.UID{"old1", "old0"}},
		{"BestEffort for its place", true, "{}", []string{guaranteed("1"), "{}", requests("cpu: 1")}, "OutOfpods", "", []types.UID{"old1"}},
		{"no critical pods", true, requests("cpu: 2"), []string{static(requests("cpu: 2"))}, "UnexpectedAdmissionError",
			"Unexpected error while attempting to recover from admission failure: preemption: error finding a set of pods to preempt: no set of running pods found to reclaim resources: [(res: cpu, q: 2000), ]", nil},
		{"critical pods of lower priority", true, "{priority: 7, " + requests("cpu: 2")[1:], []string{static("{priority: 6, " + requests("cpu: 2")[1:])}, "OutOfcpu", "", []types.UID{"old0"}},
		{"more than the node has", true, requests("cpu: 5"), []string{requests("cpu: 2")}, "UnexpectedAdmissionError", "", nil},
		{"a device that the node has not", true, requests("example.com/gpu: 1"), []string{requests("cpu: 2")}, "UnexpectedAdmissionError", "", nil},
		{"nobody for a pod that another reason rejects", true, "{nodeSelector: {zone: cellar}, " + requests("cpu: 2")[1:], []string{requests("cpu: 2")}, "NodeAffinity", "", nil},
		{"nobody for a pod that AppArmor rejects", true, "{securityContext: {appArmorProfile: {type: Localhost}}, " + requests("cpu: 2")[1:], []string{requests("cpu: 2")}, "AppArmor", "", nil},
		{"overhead counts beside a request", true, requests("cpu: 1"), []string{"{overhead: {cpu: 600m}, " + requests("cpu: 500m")[1:]}, "OutOfcpu", "", []types.UID{"old0"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			metadata := ""
			if tt.static {
				metadata = fromFile
			}
			var others []*v1.Pod
			for i, spec := range tt.others {
				spec, isStatic := strings.CutPrefix(spec, "static ")
				meta := ""
				if isStatic {
					meta = fromFile
				}
				others = append(others, fitPod(t, fmt.Sprintf("old%d", i), meta, spec))
			}
			got := Fit(fitPod(t, "new", metadata, tt.spec), testNode(), others)
			if got == nil {
				got = &Rejection{}
			}
			if got.Reason != tt.reason || (tt.message != "" && got.Message != tt.message) {
				t.Errorf("got %s: %s", got.Reason, got.Message)
			}
			if d := cmp.Diff(tt.preempt, got.Preempt); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

// TestPreemptIsEnough: whatever pods there are, the critical one fits once
// those that it preempts are gone, and no critical pod is among them.
func TestPreemptIsEnough(t *testing.T) {
	fill := randfill.NewWithSeed(3)
	amounts := func() v1.ResourceList {
		var cpu, memory uint8
		fill.Fill(&cpu)
		fill.Fill(&memory)
		return v1.ResourceList{
			v1.ResourceCPU:    *resource.NewMilliQuantity(int64(cpu)*4, resource.DecimalSI),
			v1.ResourceMemory: *resource.NewQuantity(int64(memory)<<20, resource.BinarySI),
		}
	}
	preempted := 0
	for range 2000 {
		var others []*v1.Pod
		for i := range 6 {
			var kind uint8
			fill.Fill(&kind)
			r := v1.ResourceRequirements{}
			if kind%3 > 0 {
				r.Requests = amounts()
			}
			if kind%3 > 1 {
				r.Limits = r.Requests
			}
			p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Resources: r}}}}
			p.UID = types.UID(fmt.Sprint(i))
			if kind%7 == 0 {
				p.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
			}
			others = append(others, p)
		}
		critical := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Resources: v1.ResourceRequirements{Requests: amounts()}}}}}
		critical.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
		node := testNode()
		node.MaxPods = 6
		r := Fit(critical, node, others)
		if r == nil || len(r.Preempt) == 0 {
			continue
		}
		preempted++
		var left []*v1.Pod
		for _, p := range others {
			gone := false
			for _, uid := range r.Preempt {
				gone = gone || uid == p.UID
			}
			if !gone {
				left = append(left, p)
			} else if p.Annotations != nil {
				t.Error("a critical pod is preempted")
			}
		}
		if again := Fit(critical, node, left); again != nil {
			t.Fatalf("without %v it still does not fit: %+v", r.Preempt, again)
		}
	}
	if preempted < 100 {
		t.Errorf("only %d rounds preempted", preempted)
	}
}

// FuzzFit: for any two pods, a rejection has a reason and a message, a second
// call has the same result, and only the other pod is preempted.
func FuzzFit(f *testing.F) {
	f.Add([]byte(`{"priority":2000000000,"containers":[{"resources":{"requests":{"cpu":"20E","example.com/led":"3"}},"ports":[{"hostPort":80}]}]}`),
		[]byte(`{"overhead":{"cpu":"1e30"},"initContainers":[{"restartPolicy":"Always","resources":{"requests":{"cpu":"-5"}}}],"containers":[{"ports":[{"hostPort":80,"hostIP":"x"}]}]}`))
	f.Add([]byte(`{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"a","operator":"Gt","values":["x"]}]}]}}},"securityContext":{"sysctls":[{"name":"/"}]}}`), []byte(`{}`))
	f.Fuzz(func(t *testing.T, spec, otherSpec []byte) {
		p, other := &v1.Pod{}, &v1.Pod{}
		if len(spec) > 1<<12 || len(otherSpec) > 1<<12 || json.Unmarshal(spec, &p.Spec) != nil || json.Unmarshal(otherSpec, &other.Spec) != nil {
			return
		}
		p.UID, other.UID = "new", "old"
		r := Fit(p, testNode(), []*v1.Pod{other})
		if d := cmp.Diff(r, Fit(p, testNode(), []*v1.Pod{other})); d != "" {
			t.Errorf("not the same twice: %s", d)
		}
		if r != nil && (r.Reason == "" || r.Message == "" || len(r.Preempt) > 1 || (len(r.Preempt) == 1 && r.Preempt[0] != "old")) {
			t.Errorf("got %+v", r)
		}
	})
}

func BenchmarkFit(b *testing.B) {
	node := testNode()
	node.MaxPods = 110
	var others []*v1.Pod
	for i := range 109 {
		others = append(others, &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{
			{Ports: []v1.ContainerPort{{HostPort: int32(i + 1)}}, Resources: v1.ResourceRequirements{Requests: v1.ResourceList{
				v1.ResourceCPU: resource.MustParse("10m"), v1.ResourceMemory: resource.MustParse("1Mi")}}},
			{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("5m")}}},
		}}})
		others[i].UID = types.UID(fmt.Sprint(i))
	}
	p := others[0].DeepCopy()
	p.UID = "new"
	p.Spec.Containers[0].Ports[0].HostPort = 1000
	p.Spec.NodeSelector = map[string]string{"zone": "attic"}
	b.ReportAllocs()
	for b.Loop() {
		if r := Fit(p, node, others); r != nil {
			b.Fatal(r.Message)
		}
	}
}
