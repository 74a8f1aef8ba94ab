//go:build board

package standalone

import (
	"strings"

	"github.com/tinylet/tinylet/cmd/tinylet/cli"
)

// nodeScene is what pods get of the node by name, number and place.
func nodeScene() scene {
	return scene{
		name: "pod level",
		pods: map[string]string{
			"names": namesPod, "cluster": clusterPod, "override": overridePod, "port": portPod("port"),
			"unselected": selectPod("unselected", "ssd"), "selected": selectPod("selected", "flash"), "affinity": affinityPod,
			"windows": windowsPod, "levels": levelsPod, "guaranteed": guaranteedPod,
			"class": classPod("class", "plain"), "noclass": classPod("noclass", "missing"), "nohandler": classPod("nohandler", "exotic"),
		},
		before: func(n node) { n.object("classes.yaml", runtimeClasses) },
		after:  func(n node) { n.sh("rm %s/classes.yaml", objectsDir) },
		checks: []check{
			{"hostname, subdomain, hostAliases, own DNS", hostNames},
			{"the cluster's DNS, the full name as hostname", clusterNames},
			{"host ports and their conflict", hostPorts},
			{"node selector and affinity", selectors},
			{"another operating system", otherSystem},
			{"resources of the pod as a whole", podResources},
			{"runtime classes", classes},
		},
	}
}

const namesPod = `
apiVersion: v1
kind: Pod
metadata: {name: names}
spec:
  restartPolicy: Never
  hostname: web
  subdomain: sub
  hostAliases: [{ip: 1.2.3.4, hostnames: [foo, bar]}]
  dnsPolicy: None
  dnsConfig: {nameservers: [1.2.3.4], searches: [a.b], options: [{name: ndots, value: "2"}, {name: edns0}]}
  containers: [{name: c, image: program, command: [/program, report]}]
`

// lines are the fields of each line of a file that is no comment, sorted by
// their first field.
func fieldsOf(text, first string) []string {
	var out []string
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		if f := strings.Fields(line); len(f) > 0 && f[0] == first {
			out = append(out, strings.Join(f[1:], " "))
		}
	}
	return out
}

func hostNames(n node) {
	p := n.pod("names")
	r := p.report("c")
	d := p.status("Completed")
	p.same("hostname", "web", r.Hostname)
	p.same("full name", "web.sub.default.svc.cluster.local", r.FQDN)
	p.same("its line of /etc/hosts", []string{"web.sub.default.svc.cluster.local web"}, fieldsOf(r.Hosts, d.PodIP))
	p.same("the alias", []string{"foo bar"}, fieldsOf(r.Hosts, "1.2.3.4"))
	p.same("name servers", []string{"1.2.3.4"}, fieldsOf(r.ResolvConf, "nameserver"))
	p.same("search list", []string{"a.b"}, fieldsOf(r.ResolvConf, "search"))
	p.same("options", []string{"ndots:2 edns0"}, fieldsOf(r.ResolvConf, "options"))
}

const clusterPod = `
apiVersion: v1
kind: Pod
metadata: {name: cluster}
spec:
  restartPolicy: Never
  subdomain: sub
  setHostnameAsFQDN: true
  dnsConfig: {searches: [more.example]}
  containers: [{name: c, image: program, command: [/program, report]}]
`

const overridePod = `
apiVersion: v1
kind: Pod
metadata: {name: override}
spec:
  restartPolicy: Never
  hostnameOverride: my.own.name
  containers: [{name: c, image: program, command: [/program, report]}]
`

func clusterNames(n node) {
	p := n.pod("cluster")
	r := p.report("c")
	p.same("hostname", "cluster-board.sub.default.svc.cluster.local", r.Hostname)
	p.same("name servers", []string{"10.96.0.10"}, fieldsOf(r.ResolvConf, "nameserver"))
	search := strings.Join(fieldsOf(r.ResolvConf, "search"), " ")
	p.holds("search list", strings.HasPrefix(search, "default.svc.cluster.local svc.cluster.local cluster.local") && strings.HasSuffix(search, "more.example"), search)
	p.same("options", []string{"ndots:5"}, fieldsOf(r.ResolvConf, "options"))
	p = n.pod("override")
	p.same("hostnameOverride", "my.own.name", p.report("c").Hostname)
}

func portPod(name string) string {
	return `
apiVersion: v1
kind: Pod
metadata: {name: ` + name + `}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: program, command: [/program, serve, -http, ":8080"], ports: [{containerPort: 8080, hostPort: 18080}]}]
`
}

func hostPorts(n node) {
	p := n.pod("port")
	d := p.status("Running")
	got := n.sh("for i in $(seq 30); do wget -q -T 5 -O - http://%s:18080/healthz && break; sleep 1; done", d.Object.Status.HostIP)
	p.same("the node's port leads to the pod", "ok", got)
	n.put("port2.yaml", manifest(portPod("port2")))
	n.pod("port2").rejected("NodePorts")
	p.status("Running")
	p.remove()
	n.pod("port2").remove()
	p.gone()
	n.put("port3.yaml", manifest(portPod("port3")))
	n.pod("port3").status("Running")
}

func selectPod(name, disk string) string {
	return `
apiVersion: v1
kind: Pod
metadata: {name: ` + name + `}
spec:
  terminationGracePeriodSeconds: 1
  nodeSelector: {disk: ` + disk + `, kubernetes.io/os: linux}
  containers: [{name: c, image: program, command: [/program, trap]}]
`
}

const affinityPod = `
apiVersion: v1
kind: Pod
metadata: {name: affinity}
spec:
  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms: [{matchExpressions: [{key: disk, operator: NotIn, values: [flash]}]}]
  containers: [{name: c, image: program, command: [/program, trap]}]
`

func selectors(n node) {
	n.pod("selected").status("Running")
	n.pod("unselected").rejected("NodeAffinity")
	n.pod("affinity").rejected("NodeAffinity")
}

const windowsPod = `
apiVersion: v1
kind: Pod
metadata: {name: windows}
spec:
  os: {name: windows}
  containers: [{name: c, image: program, command: [/program, trap]}]
`

func otherSystem(n node) {
	n.pod("windows").rejected("PodOSNotSupported")
}

const levelsPod = `
apiVersion: v1
kind: Pod
metadata: {name: levels}
spec:
  terminationGracePeriodSeconds: 1
  resources: {requests: {cpu: 100m, memory: 64Mi}, limits: {cpu: 500m, memory: 96Mi}}
  containers:
  - {name: a, image: program, command: [/program, trap]}
  - {name: b, image: program, command: [/program, trap], resources: {limits: {memory: 48Mi}}}
`

const guaranteedPod = `
apiVersion: v1
kind: Pod
metadata: {name: guaranteed}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: program, command: [/program, report, -linger, -cgroup, memory.max, -cgroup, cpu.max, -cgroup, cpu.weight], resources: {limits: {cpu: 200m, memory: 40Mi}}}]
`

func podResources(n node) {
	cgroup := func(d *cli.DescriptionDocument, file string) string {
		return n.sh("cat $(find /sys/fs/cgroup/kubepods -maxdepth 2 -name '*%s*')/%s", d.UID, file)
	}
	p := n.pod("levels")
	d := p.status("Running")
	p.same("the pod's memory.max", "100663296", cgroup(d, "memory.max"))
	p.same("the pod's cpu.max", "50000 100000", cgroup(d, "cpu.max"))
	p.same("QoS class", "Burstable", string(d.Object.Status.QOSClass))
	p = n.pod("guaranteed")
	r := p.report("c")
	d = p.status("Running")
	p.same("QoS class", "Guaranteed", string(d.Object.Status.QOSClass))
	p.same("the container's limits", [2]string{"41943040", "20000 100000"}, [2]string{r.Cgroup["memory.max"], r.Cgroup["cpu.max"]})
	p.same("the pod's memory.max", "41943040", cgroup(d, "memory.max"))
	p.same("oom_score_adj", -997, r.OOMScore)
}

// runtimeClasses: "runc" is what containerd calls its default handler.
const runtimeClasses = `
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: plain}
handler: runc
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: exotic}
handler: nobody-has-this
`

func classPod(name, class string) string {
	return `
apiVersion: v1
kind: Pod
metadata: {name: ` + name + `}
spec:
  terminationGracePeriodSeconds: 1
  runtimeClassName: ` + class + `
  containers: [{name: c, image: program, command: [/program, trap]}]
`
}

// classes: the runtime gets the handler that the class names, a class that is
// missing is waited for.
func classes(n node) {
	n.pod("class").status("Running")
	n.pod("nohandler").event("FailedCreatePodSandBox", "nobody-has-this")
	late := n.pod("noclass")
	late.event("FailedCreatePodSandBox", "missing")
	n.object("classes.yaml", runtimeClasses+"---\napiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: missing}\nhandler: runc\n")
	late.status("Running")
}

// admissionScene is the last: it starts the agent with another configuration.
func admissionScene() scene {
	return scene{
		name: "admission",
		pods: map[string]string{"modest": requestPod("modest", "cpu: 1500m", "")},
		checks: []check{
			{"more than the node has", tooLarge},
			{"a critical pod takes the place of a lesser one", preemption},
			{"the next agent keeps that place", restarted},
			{"too many pods", tooMany},
		},
	}
}

func requestPod(name, request, more string) string {
	return `
apiVersion: v1
kind: Pod
metadata: {name: ` + name + `}
spec:
  terminationGracePeriodSeconds: 1
  priority: 0
  ` + more + `
  containers: [{name: c, image: program, command: [/program, trap], resources: {requests: {` + request + `}}}]
`
}

// tooLarge: for a static pod, which is critical, the kubelet first looks for
// pods to preempt, and fails with UnexpectedAdmissionError when none help.
func tooLarge(n node) {
	n.pod("modest").status("Running")
	n.put("cpus.yaml", manifest(requestPod("cpus", `cpu: "100"`, "")))
	n.put("memory.yaml", manifest(requestPod("memory", "memory: 100Gi", "")))
	for name, reason := range map[string]string{"cpus": "OutOfcpu", "memory": "OutOfmemory"} {
		n.pod(name).rejected(reason, "UnexpectedAdmissionError")
		n.pod(name).remove()
	}
	n.pod("modest").status("Running")
}

const criticalPod = `
apiVersion: v1
kind: Pod
metadata: {name: critical, namespace: kube-system}
spec:
  terminationGracePeriodSeconds: 1
  priorityClassName: system-node-critical
  priority: 2000001000
  containers: [{name: c, image: program, command: [/program, trap], resources: {requests: {cpu: 1000m}}}]
`

func preemption(n node) {
	modest := n.pod("modest")
	modest.status("Running")
	n.put("critical.yaml", manifest(criticalPod))
	n.pod("kube-system/critical").status("Running")
	modest.rejected("Preempting")
	modest.event("Preempting", "")
}

// restarted: the next agent, which has a smaller maxPods, must not start what
// was preempted beside the pod that needed its place.
func restarted(n node) {
	before := n.tasks()
	n.sh("sed -i 's/^maxPods: .*/maxPods: 2/' /etc/tinylet/config.yaml && /etc/init.d/S50tinylet restart")
	n.pod("kube-system/critical").status("Running")
	now := n.tasks()
	for id, pid := range before {
		if now[id] != pid {
			n.Errorf("container %s was %s and is %q after the agent's restart", id, pid, now[id])
		}
	}
	n.pod("modest").rejected("Preempting", "OutOfcpu", "UnexpectedAdmissionError")
}

func tooMany(n node) {
	n.pod("modest").remove()
	n.pod("modest").gone()
	n.put("many1.yaml", manifest(requestPod("many1", "cpu: 10m", "")))
	n.pod("many1").status("Running")
	n.put("many2.yaml", manifest(requestPod("many2", "cpu: 10m", "")))
	n.pod("many2").rejected("OutOfpods", "UnexpectedAdmissionError")
	n.pod("kube-system/critical").status("Running")
	n.pod("many1").status("Running")
}
