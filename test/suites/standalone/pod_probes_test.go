//go:build board

package standalone

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/cmd/tinylet/cli"
)

// probeScene is startup, liveness and readiness by all kinds of probes. Targets
// that answer have long timeouts, and what costs a board most, TLS and processes
// in containers, has long periods: an emulated board whose machine is busy would
// otherwise be busy with probes alone, and all of them would time out.
func probeScene() scene {
	return scene{
		name: "probes",
		pods: map[string]string{
			"ready": readyPod, "unready": unreadyPod, "live": livePod, "startup": startupPod, "gate": gatePod,
		},
		checks: []check{
			{"all kinds find a healthy target", healthy},
			{"readiness reaches the conditions at once", readiness},
			{"targets that hang, refuse or lack a header", unready},
			{"redirects and their limit", redirects},
			{"liveness restarts", liveness},
			{"a probe's own grace period", probeGrace},
			{"startup comes first", startup},
			{"readiness gates", readinessGate},
		},
	}
}

const readyPod = `
apiVersion: v1
kind: Pod
metadata: {name: ready}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: http, image: program, command: [/program, serve, -http, ":8001"],
     readinessProbe: {httpGet: {port: 8001, path: /healthz}, periodSeconds: 2, timeoutSeconds: 30}}
  - {name: https, image: program, command: [/program, serve, -https, ":8002"],
     readinessProbe: {httpGet: {port: 8002, path: /healthz, scheme: HTTPS}, periodSeconds: 10, timeoutSeconds: 30}}
  - {name: named, image: program, command: [/program, serve, -tcp, ":8003"], ports: [{name: raw, containerPort: 8003}],
     readinessProbe: {tcpSocket: {port: raw}, periodSeconds: 5, timeoutSeconds: 30}}
  - {name: grpc, image: program, command: [/program, serve, -http, ":8004"],
     readinessProbe: {grpc: {port: 8004}, periodSeconds: 10, timeoutSeconds: 30}}
  - {name: exec, image: program, command: [/program, trap],
     readinessProbe: {exec: {command: [/program, exit, "0"]}, periodSeconds: 20, timeoutSeconds: 60}}
  - {name: header, image: program, command: [/program, serve, -http, ":8005"],
     readinessProbe: {httpGet: {port: 8005, path: "/header?x-probe=yes&host=web", httpHeaders: [{name: X-Probe, value: "yes"}, {name: Host, value: web}]}, periodSeconds: 5, timeoutSeconds: 30}}
`

// readyOnes says which containers are ready, in words.
func readyOnes(d *cli.DescriptionDocument) string {
	var out []string
	for _, c := range d.Containers {
		if c.Ready {
			out = append(out, c.Name)
		}
	}
	return strings.Join(out, " ")
}

func ready(want string) func(*cli.DescriptionDocument) string {
	return func(d *cli.DescriptionDocument) string {
		if got := readyOnes(d); got != want {
			return "ready are: " + got
		}
		return ""
	}
}

func healthy(n node) {
	p := n.pod("ready")
	d := p.until("ready by http, https, tcp, grpc, exec and with headers", ready("http https named grpc exec header"))
	p.same("condition Ready", "True", condition(d, v1.PodReady))
}

func readiness(n node) {
	p := n.pod("ready")
	d := p.until("all ready", ready("http https named grpc exec header"))
	n.sh("wget -q -O - 'http://%s:8001/set?health=bad'", d.PodIP)
	set := time.Now()
	d = p.until("one unready after it turned bad", ready("https named grpc exec header"))
	p.Logf("ready: seen %.1f s after the target turned bad (period 2 s, three failures)", time.Since(set).Seconds())
	p.same("condition Ready", "False ContainersNotReady", condition(d, v1.PodReady))
	p.same("condition ContainersReady", "False ContainersNotReady", condition(d, v1.ContainersReady))
	p.event("Unhealthy", "500")
	n.sh("wget -q -O - 'http://%s:8001/set?health=good'", d.PodIP)
	d = p.until("ready again", ready("http https named grpc exec header"))
	p.same("condition Ready", "True", condition(d, v1.PodReady))
	p.same("restarts", 0, d.Restarts)
}

const unreadyPod = `
apiVersion: v1
kind: Pod
metadata: {name: unready}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: hung, image: program, command: [/program, serve, -http, ":8001", -health, hang],
     readinessProbe: {httpGet: {port: 8001, path: /healthz}, periodSeconds: 2, timeoutSeconds: 2, failureThreshold: 1}}
  - {name: nobody, image: program, command: [/program, trap],
     readinessProbe: {tcpSocket: {port: 8999}, periodSeconds: 3, timeoutSeconds: 5, failureThreshold: 1}}
  - {name: nothing, image: program, command: [/program, trap],
     readinessProbe: {exec: {command: [/no/such/program]}, periodSeconds: 20, timeoutSeconds: 60, failureThreshold: 1}}
  - {name: hungexec, image: program, command: [/program, trap],
     readinessProbe: {exec: {command: [/program, ignore-term]}, periodSeconds: 20, timeoutSeconds: 2, failureThreshold: 1}}
  - {name: header, image: program, command: [/program, serve, -http, ":8002"],
     readinessProbe: {httpGet: {port: 8002, path: "/header?x-probe=yes"}, periodSeconds: 5, timeoutSeconds: 30, failureThreshold: 1}}
  - {name: local, image: program, command: [/program, serve, -http, ":8003"],
     readinessProbe: {httpGet: {port: 8003, path: "/redirect?to=/healthz"}, periodSeconds: 5, timeoutSeconds: 30}}
  - {name: away, image: program, command: [/program, serve, -http, ":8004"],
     readinessProbe: {httpGet: {port: 8004, path: "/redirect?to=http://192.0.2.1/"}, periodSeconds: 5, timeoutSeconds: 30}}
  - {name: beside, image: program, command: [/program, serve, -http, ":8005"],
     readinessProbe: {httpGet: {port: 8005, path: /healthz}, periodSeconds: 5, timeoutSeconds: 30}}
`

func unready(n node) {
	p := n.pod("unready")
	p.until("only targets that answer are ready", ready("local away beside"))
	for _, want := range []string{"refused", "deadline", "400"} {
		p.until("an event Unhealthy tells of "+want, func(d *cli.DescriptionDocument) string {
			for i := range d.Events {
				if e := &d.Events[i]; e.Reason == "Unhealthy" && strings.Contains(strings.ToLower(e.Message), want) {
					return ""
				}
			}
			return "it is not among " + n.sh("tinylet events unready | grep Unhealthy; true")
		})
	}
	d := p.until("they stay so", ready("local away beside"))
	p.same("restarts", 0, d.Restarts)
}

func redirects(n node) {
	p := n.pod("unready")
	p.until("a redirect to the same host is followed, one away is a success", func(d *cli.DescriptionDocument) string {
		if !find(d, "local").Ready || !find(d, "away").Ready {
			return "ready are: " + readyOnes(d)
		}
		return ""
	})
	p.event("ProbeWarning", "192.0.2.1")
}

const livePod = `
apiVersion: v1
kind: Pod
metadata: {name: live}
spec:
  terminationGracePeriodSeconds: 600
  containers:
  - {name: http, image: program, command: [/program, serve, -http, ":8001"],
     livenessProbe: {httpGet: {port: 8001, path: /healthz}, periodSeconds: 2, timeoutSeconds: 30}}
  - {name: exec, image: program, command: [/program, trap],
     livenessProbe: {exec: {command: [/program, exit, "0"]}, periodSeconds: 20, timeoutSeconds: 60}}
  - name: stubborn
    image: program
    command: [/program, ignore-term]
    livenessProbe: {tcpSocket: {port: 8999}, periodSeconds: 5, timeoutSeconds: 5, failureThreshold: 2, terminationGracePeriodSeconds: 2}
`

func liveness(n node) {
	p := n.pod("live")
	d := p.until("running", func(d *cli.DescriptionDocument) string {
		if c := find(d, "http"); c.State != "Running" {
			return c.State
		}
		return ""
	})
	before := find(d, "http").Restarts
	n.sh("for i in $(seq 30); do wget -q -O - 'http://%s:8001/set?health=bad' && break; sleep 1; done", d.PodIP)
	d = p.until("the one that turned bad was started again, and is good", func(d *cli.DescriptionDocument) string {
		if c := find(d, "http"); c.Restarts <= before || c.State != "Running" {
			return fmt.Sprintf("%d restarts, %s", c.Restarts, c.State)
		}
		return ""
	})
	p.event("Killing", "failed liveness probe")
	p.same("restarts of its healthy neighbour", 0, find(d, "exec").Restarts)
}

// probeGrace also removes the pod and kills what ignores its end.
func probeGrace(n node) {
	p := n.pod("live")
	p.until("one that ignores TERM is started again, though the pod's grace period is ten minutes", func(d *cli.DescriptionDocument) string {
		if find(d, "stubborn").Restarts == 0 {
			return "no restart"
		}
		return ""
	})
	p.remove()
	n.sh(`for i in $(seq 20); do
	tinylet describe default/live-board > /dev/null 2>&1 || exit 0
	for f in /proc/[0-9]*/cmdline; do
		tr '\0' ' ' < $f 2> /dev/null | grep -q '^/program ignore-term' && kill -9 $(echo $f | cut -d / -f 3)
	done
	sleep 1
done; true`)
	p.gone()
}

const startupPod = `
apiVersion: v1
kind: Pod
metadata: {name: startup}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: slow
    image: program
    command: [/program, serve, -http, ":8001", -health, bad, -good-after, 8s]
    startupProbe: {httpGet: {port: 8001, path: /healthz}, periodSeconds: 2, timeoutSeconds: 30, failureThreshold: 100}
    livenessProbe: {httpGet: {port: 8001, path: /healthz}, periodSeconds: 2, timeoutSeconds: 30, failureThreshold: 2}
  - name: never
    image: program
    command: [/program, serve, -http, ":8002", -health, bad]
    startupProbe: {httpGet: {port: 8002, path: /healthz}, periodSeconds: 2, timeoutSeconds: 30, failureThreshold: 3}
`

func startup(n node) {
	p := n.pod("startup")
	d := p.until("one that takes 8 s to become healthy has started", func(d *cli.DescriptionDocument) string {
		for i := range d.Object.Status.ContainerStatuses {
			if c := &d.Object.Status.ContainerStatuses[i]; c.Name == "slow" && c.Started != nil && *c.Started {
				return ""
			}
		}
		return "not started"
	})
	p.same("its restarts: liveness waited", 0, find(d, "slow").Restarts)
	p.until("one that never does is started again", func(d *cli.DescriptionDocument) string {
		if find(d, "never").Restarts == 0 {
			return "no restart"
		}
		return ""
	})
	p.event("Killing", "failed startup probe")
}

const gatePod = `
apiVersion: v1
kind: Pod
metadata: {name: gate}
spec:
  terminationGracePeriodSeconds: 1
  readinessGates: [{conditionType: example.com/open}]
  containers: [{name: c, image: program, command: [/program, trap]}]
`

func readinessGate(n node) {
	p := n.pod("gate")
	d := p.until("its container is ready", ready("c"))
	p.same("condition ContainersReady", "True", condition(d, v1.ContainersReady))
	p.same("condition Ready", "False ReadinessGatesNotReady", condition(d, v1.PodReady))
}
