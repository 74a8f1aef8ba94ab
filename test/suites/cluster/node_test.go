//go:build cluster

package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
)

// TestNode joins a board to a cluster and uses it as clusters use nodes.
func TestNode(t *testing.T) {
	l := newLab(t)
	for _, step := range []struct {
		name string
		test func(lab)
	}{
		{"joins", lab.joins},
		{"idle", lab.idle},
		{"deployment", lab.deployment},
		{"configuration", lab.configuration},
		{"daemonset and job", lab.daemonSetAndJob},
		{"static pod and its mirror", lab.mirror},
		{"deleted pods", lab.deleted},
		{"ephemeral container", lab.ephemeral},
		{"drain", lab.drain},
		{"API server away", lab.serverAway},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.test(l.with(t)) }) {
			break
		}
	}
	for _, e := range l.c.Refused(t) {
		t.Errorf("the cluster refused %+v", e)
	}
}

func (l lab) joins() {
	l.until("the node is Ready", l.nodeReady)
	var n corev1.Node
	l.c.Get(l.T, &n, "node", name)
	if n.Labels["disk"] != "flash" || n.Labels[corev1.LabelHostname] != name || n.Labels[corev1.LabelArchStable] != "arm64" {
		l.Errorf("labels %v", n.Labels)
	}
	if !strings.HasPrefix(n.Status.NodeInfo.ContainerRuntimeVersion, "containerd://") || !strings.HasPrefix(n.Status.NodeInfo.KubeletVersion, "v1.36.0+tinylet.") {
		l.Errorf("info %+v", n.Status.NodeInfo)
	}
	addresses := make(map[corev1.NodeAddressType]string)
	for _, a := range n.Status.Addresses {
		addresses[a.Type] = a.Address
	}
	want := map[corev1.NodeAddressType]string{corev1.NodeInternalIP: "10.77.0.10", corev1.NodeHostName: name}
	if diff := cmp.Diff(want, addresses); diff != "" {
		l.Errorf("addresses (-want +got):\n%s", diff)
	}
	for kind, reason := range map[corev1.NodeConditionType]string{
		corev1.NodeReady: "KubeletReady", corev1.NodeMemoryPressure: "KubeletHasSufficientMemory",
		corev1.NodeDiskPressure: "KubeletHasNoDiskPressure", corev1.NodePIDPressure: "KubeletHasSufficientPID",
	} {
		if !slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == kind && c.Reason == reason }) {
			l.Errorf("conditions %+v, want %s with reason %s", n.Status.Conditions, kind, reason)
		}
	}
	if mem := n.Status.Capacity.Memory().Value(); mem < 400<<20 || mem > 512<<20 {
		l.Errorf("memory %d", mem)
	}
	l.until("the lease is renewed", func() string {
		var lease coordinationv1.Lease
		l.c.Get(l.T, &lease, "lease", name, "--namespace=kube-node-lease")
		if age := time.Since(lease.Spec.RenewTime.Time); age > 15*time.Second || len(lease.OwnerReferences) != 1 || lease.OwnerReferences[0].UID != n.UID {
			return fmt.Sprintf("%v old, owners %v", age, lease.OwnerReferences)
		}
		return ""
	})
	l.until("renewals bring no managed fields back", func() string {
		raw := l.c.Must(l.T, "get", "--raw", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/"+name)
		if strings.Contains(raw, "managedFields") {
			return raw
		}
		return ""
	})
	l.until("events of the node", func() string {
		if got := l.c.Must(l.T, "get", "events", "--field-selector=involvedObject.kind=Node", "--output=jsonpath={.items[*].reason}"); !strings.Contains(got, "Starting") {
			return got
		}
		return ""
	})
}

const web = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 10
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 5
      containers:
      - {name: web, image: "localhost/busybox:1", imagePullPolicy: IfNotPresent, command: [sh, -c, "trap 'exit 0' TERM; while :; do sleep 1; done"]}
`

func (l lab) deployment() {
	l.c.Apply(l.T, web)
	l.until("ten replicas run", func() string { return l.running("app=web", 10) })
	l.memory("with ten pods", 12)
	for _, p := range l.pods("app=web") {
		if p.Status.HostIP != "10.77.0.10" || p.Status.PodIP == "" || p.Spec.NodeName != name || p.Status.QOSClass != corev1.PodQOSBestEffort {
			l.Errorf("pod %s: host %q, address %q, QoS %q", p.Name, p.Status.HostIP, p.Status.PodIP, p.Status.QOSClass)
		}
	}
	l.c.Must(l.T, "scale", "deployment/web", "--replicas=3")
	l.until("three are left", func() string { return l.running("app=web", 3) })
	l.c.Must(l.T, "set", "env", "deployment/web", "VERSION=2")
	l.c.Must(l.T, "rollout", "status", "deployment/web", "--timeout=4m")
	l.until("three run after the rollout", func() string { return l.running("app=web", 3) })
	for _, p := range l.pods("app=web") {
		if env := p.Spec.Containers[0].Env; len(env) != 1 || env[0].Value != "2" {
			l.Errorf("pod %s has variables %v", p.Name, env)
		}
	}
	l.c.Must(l.T, "delete", "deployment/web", "--wait=false")
	l.gone("app=web")
}

// gone waits until the cluster and the board have nothing of the pods any
// more.
func (l lab) gone(selector string) {
	l.Helper()
	l.until(selector+" is gone", func() string {
		if left := l.pods(selector); len(left) > 0 {
			return fmt.Sprintf("%d pods", len(left))
		}
		return ""
	})
}

const configured = `apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {color: blue}
---
apiVersion: v1
kind: Secret
metadata: {name: keys}
stringData: {password: s3cret}
---
apiVersion: v1
kind: Pod
metadata: {name: configured, labels: {app: configured}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: localhost/busybox:1
    command: [sh, -c, 'echo "$COLOR $PASSWORD $KUBERNETES_SERVICE_HOST"; exec sleep 100000']
    env:
    - {name: COLOR, valueFrom: {configMapKeyRef: {name: settings, key: color}}}
    - {name: PASSWORD, valueFrom: {secretKeyRef: {name: keys, key: password}}}
    volumeMounts: [{name: settings, mountPath: /settings}, {name: token, mountPath: /token}]
  volumes:
  - {name: settings, configMap: {name: settings}}
  - name: token
    projected: {sources: [{serviceAccountToken: {path: token, audience: vault, expirationSeconds: 3600}}]}
`

func (l lab) configuration() {
	l.c.Apply(l.T, configured)
	l.until("it runs", func() string { return l.running("app=configured", 1) })
	if got := l.sh("tinylet logs configured"); got != "blue s3cret 10.96.0.1" {
		l.Errorf("the container says %q", got)
	}
	root := l.sh("for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline | grep -q '^sleep 100000' && echo $p/root; done 2> /dev/null; true")
	read := func(path string) string { return l.sh("cat " + root + path) }
	if got := read("/settings/color"); got != "blue" {
		l.Errorf("/settings/color is %q", got)
	}
	for path, parts := range map[string]int{
		"/token/token": 3,
		"/var/run/secrets/kubernetes.io/serviceaccount/token": 3,
	} {
		if token := read(path); strings.Count(token, ".") != parts-1 {
			l.Errorf("%s is no token: %d bytes", path, len(token))
		}
	}
	if ca := read("/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"); ca != strings.TrimSpace(string(l.c.CA())) {
		l.Errorf("the account's CA is %q", ca)
	}
	l.c.Must(l.T, "patch", "configmap/settings", "--patch={\"data\":{\"color\":\"green\"}}")
	start := time.Now()
	l.until("the new value is in the volume", func() string {
		if got := read("/settings/color"); got != "green" {
			return got
		}
		return ""
	})
	if took := time.Since(start); took > time.Minute {
		l.Errorf("an update reached the volume after %v, want it within a minute", took)
	}
	l.c.Must(l.T, "delete", "pod/configured", "--wait=false")
	l.gone("app=configured")
}

const daemonSetAndJob = `apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: main, image: "localhost/busybox:1", command: [sleep, "100000"]}]
---
apiVersion: batch/v1
kind: Job
metadata: {name: once}
spec:
  completions: 2
  parallelism: 2
  template:
    metadata: {labels: {app: once}}
    spec:
      restartPolicy: OnFailure
      containers: [{name: main, image: "localhost/busybox:1", command: [sh, -c, "echo done"]}]
`

func (l lab) daemonSetAndJob() {
	l.c.Apply(l.T, daemonSetAndJob)
	l.until("the daemon runs", func() string { return l.running("app=agent", 1) })
	l.c.Must(l.T, "wait", "--for=condition=Complete", "job/once", "--timeout=4m")
	for _, p := range l.pods("app=once") {
		if p.Status.Phase != corev1.PodSucceeded || p.Status.ContainerStatuses[0].State.Terminated.Reason != "Completed" {
			l.Errorf("pod %s: %+v", p.Name, p.Status)
		}
	}
	l.c.Must(l.T, "delete", "daemonset/agent", "job/once", "--wait=false")
	l.gone("app=agent")
	l.gone("app=once")
}

const static = `apiVersion: v1
kind: Pod
metadata: {name: local, labels: {app: local}}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: "localhost/busybox:1", command: [sleep, "100000"]}]
`

func (l lab) mirror() {
	l.put("/etc/kubernetes/manifests/local.yaml", static)
	l.until("its mirror runs", func() string { return l.running("app=local", 1) })
	before := l.pods("app=local")[0]
	if before.Name != "local-"+name || before.Annotations[corev1.MirrorPodAnnotationKey] == "" || len(before.OwnerReferences) != 1 {
		l.Errorf("mirror pod %+v", before.ObjectMeta)
	}
	tasks := l.sh("ctr -n k8s.io t ls | wc -l")
	l.c.Must(l.T, "delete", "pod/local-"+name, "--wait=false")
	l.until("a deleted mirror comes back", func() string {
		if got := l.pods("app=local"); len(got) != 1 || got[0].UID == before.UID || !ready(&got[0]) {
			return fmt.Sprintf("%d pods", len(got))
		}
		return ""
	})
	if now := l.sh("ctr -n k8s.io t ls | wc -l"); now != tasks {
		l.Errorf("%s tasks after the mirror was deleted, %s before", now, tasks)
	}
	l.sh("rm /etc/kubernetes/manifests/local.yaml")
	l.gone("app=local")
}

func single(pod, command string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {app: %s}}
spec:
  terminationGracePeriodSeconds: 30
  containers: [{name: main, image: "localhost/busybox:1", command: [sh, -c, %q]}]
`, pod, pod, command)
}

func (l lab) deleted() {
	const ends, ignores = "trap 'exit 0' TERM; while :; do sleep 1; done", "trap '' TERM; while :; do sleep 1; done"
	l.c.Apply(l.T, single("ends", ends))
	l.c.Apply(l.T, single("ignores", ignores))
	l.until("both run", func() string { return l.running("app in (ends,ignores)", 2) })
	l.c.Must(l.T, "delete", "pod/ends", "--wait=false")
	l.gone("app=ends")
	l.c.Must(l.T, "delete", "pod/ignores", "--force", "--grace-period=0")
	l.until("what was deleted by force is gone from the board", func() string {
		return l.sh("tinylet ps | grep ignores || true")
	})
	// The name is free at once, and the next pod waits for the former's end.
	l.c.Apply(l.T, single("ends", ends))
	l.until("a pod of the same name runs", func() string { return l.running("app=ends", 1) })
	l.c.Must(l.T, "delete", "pod/ends", "--wait=false")
	l.gone("app=ends")
}

func (l lab) ephemeral() {
	l.c.Apply(l.T, single("debugged", "exec sleep 100000"))
	l.until("it runs", func() string { return l.running("app=debugged", 1) })
	l.c.Must(l.T, "debug", "debugged", "--image=localhost/busybox:1", "--image-pull-policy=IfNotPresent", "--target=main", "--container=look",
		"--quiet", "--attach=false", "--", "sh", "-c", "ps; exec sleep 100000")
	l.until("the ephemeral container runs", func() string {
		statuses := l.pods("app=debugged")[0].Status.EphemeralContainerStatuses
		if len(statuses) != 1 || statuses[0].State.Running == nil {
			return fmt.Sprintf("%+v", statuses)
		}
		return ""
	})
	if got := l.sh("tinylet logs debugged -c look"); !strings.Contains(got, "sleep 100000") {
		l.Errorf("the ephemeral container sees %q, want its target's process", got)
	}
	l.c.Must(l.T, "delete", "pod/debugged", "--grace-period=1", "--wait=false")
	l.gone("app=debugged")
}

func (l lab) drain() {
	l.c.Apply(l.T, strings.Replace(web, "replicas: 10", "replicas: 2", 1))
	l.until("two replicas run", func() string { return l.running("app=web", 2) })
	l.c.Must(l.T, "drain", name, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=4m")
	l.until("the new ones wait for a node", func() string {
		for _, p := range l.pods("app=web") {
			if p.Spec.NodeName != "" {
				return p.Name + " is on the node"
			}
		}
		return ""
	})
	// It hears from the API server that they are gone.
	l.until("the board has forgotten them", func() string { return l.sh("tinylet ps | grep web || true") })
	l.c.Must(l.T, "uncordon", name)
	l.until("two replicas run again", func() string { return l.running("app=web", 2) })
}

// serverAway leaves the node without its API server.
func (l lab) serverAway() {
	before := restarts(l.pods("app=web"))
	l.c.StopAPIServer(l.T)
	const away = 5 * time.Minute
	l.Logf("the API server is away for %v", away)
	time.Sleep(away)
	if got := l.sh("tinylet ps | grep -c Running"); got == "0" {
		l.Errorf("the board shows %s", got)
	}
	l.c.StartAPIServer(l.T)
	l.until("the node is Ready again", l.nodeReady)
	l.until("two replicas run", func() string { return l.running("app=web", 2) })
	if diff := cmp.Diff(before, restarts(l.pods("app=web"))); diff != "" {
		l.Errorf("containers (-before +after):\n%s", diff)
	}
}
