//go:build board

package standalone

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tinylet/tinylet/cmd/tinylet/cli"
)

// lifecycleScene is the order of containers' starts and ends, hooks, and how
// long an end may take.
func lifecycleScene() scene {
	return scene{
		name:   "lifecycle",
		before: func(n node) { n.sh("rm -rf %[1]s && mkdir -p %[1]s", sharedDir) },
		pods: map[string]string{
			"order": orderPod, "hooks": hooksPod, "postfail": postFailPod, "slowhook": slowHookPod,
			"stubborn": stubbornPod, "signal": signalPod, "sidecar": sidecarPod, "hooked": hookedPod,
		},
		checks: []check{
			{"init containers and sidecars start in order", startOrder},
			{"a sidecar starts again beside its containers", sidecarRestarts},
			{"sidecars end last, in reverse order", endOrder},
			{"a postStart hook that fails ends its container", postStartFails},
			{"hooks run after the start and before the end", hooks},
			{"a postStart hook over HTTP", hookOverHTTP},
			{"a hook that never returns costs the grace period", slowHook},
			{"a container that ignores TERM is killed", stubborn},
			{"stop signal", stopSignal},
		},
	}
}

const orderPod = `
apiVersion: v1
kind: Pod
metadata: {name: order}
spec:
  terminationGracePeriodSeconds: 30
  volumes: [{name: o, hostPath: {path: /var/tmp/e2e, type: Directory}}]
  initContainers:
  - {name: first, image: program, command: [/program, trap, -out, /o/order, -name, first, -life, 10ms], volumeMounts: [{name: o, mountPath: /o}]}
  - name: side1
    image: program
    restartPolicy: Always
    command: [/program, trap, -out, /o/order, -name, side1, -linger, 200ms]
    startupProbe: {exec: {command: [/program, exit, "0"]}, initialDelaySeconds: 3, periodSeconds: 1, timeoutSeconds: 30}
    volumeMounts: [{name: o, mountPath: /o}]
  - {name: second, image: program, command: [/program, trap, -out, /o/order, -name, second, -life, 10ms], volumeMounts: [{name: o, mountPath: /o}]}
  - name: side2
    image: program
    restartPolicy: Always
    command: [/program, trap, -out, /o/order, -name, side2, -linger, 200ms]
    volumeMounts: [{name: o, mountPath: /o}]
  containers:
  - {name: main, image: program, command: [/program, trap, -out, /o/order, -name, main, -linger, 1s], volumeMounts: [{name: o, mountPath: /o}]}
`

func startOrder(n node) {
	p := n.pod("order")
	p.status("Running")
	p.until("the file tells of all starts", func(*cli.DescriptionDocument) string {
		if w := words(n.trapped("order")); !slices.Contains(w, "main start") {
			return strings.Join(w, ", ")
		}
		return ""
	})
	lines := n.trapped("order")
	p.same("starts", []string{
		"first start", "first end", "side1 start", "second start", "second end", "side2 start", "main start",
	}, words(lines))
	var side1, second time.Time
	for _, e := range lines {
		if e.who == "side1" {
			side1 = e.at
		} else if e.who == "second" && e.word == "start" {
			second = e.at
		}
	}
	p.holds("the next init container waits for the sidecar's startup probe (3 s)", second.Sub(side1) >= 2*time.Second, second.Sub(side1))
}

func endOrder(n node) {
	p := n.pod("order")
	p.status("Running")
	before := len(n.trapped("order"))
	p.remove()
	p.Logf("order: gone after %.0f s", p.gone().Seconds())
	p.same("ends", []string{
		"main TERM", "main end", "side2 TERM", "side2 end", "side1 TERM", "side1 end",
	}, words(n.trapped("order")[before:]))
}

const sidecarPod = `
apiVersion: v1
kind: Pod
metadata: {name: sidecar}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 5
  volumes: [{name: o, hostPath: {path: /var/tmp/e2e, type: Directory}}]
  initContainers:
  - {name: side, image: program, restartPolicy: Always, command: [/program, trap, -life, 2s, -code, "3"]}
  containers:
  - {name: main, image: program, command: [/program, exit, -after, 20s, "0"]}
`

func sidecarRestarts(n node) {
	p := n.pod("sidecar")
	p.until("the sidecar was started again", func(d *cli.DescriptionDocument) string {
		if find(d, "side").Restarts == 0 {
			return "no restart"
		}
		return ""
	})
	d := p.until("the pod ends with its main container", func(d *cli.DescriptionDocument) string {
		if d.Phase != "Succeeded" {
			return "phase " + d.Phase
		}
		return ""
	})
	p.same("restarts of the main container", 0, find(d, "main").Restarts)
}

const hooksPod = `
apiVersion: v1
kind: Pod
metadata: {name: hooks}
spec:
  terminationGracePeriodSeconds: 60
  volumes: [{name: o, hostPath: {path: /var/tmp/e2e, type: Directory}}]
  containers:
  - name: exec
    image: program
    command: [/program, trap, -out, /o/exec, -name, main]
    volumeMounts: [{name: o, mountPath: /o}]
    lifecycle:
      postStart: {exec: {command: [/program, trap, -out, /o/exec, -name, post, -life, 1ms]}}
      preStop: {exec: {command: [/program, trap, -out, /o/exec, -name, pre, -life, 500ms]}}
  - name: http
    image: program
    command: [/program, serve, -http, ":8080", -out, /o/http]
    volumeMounts: [{name: o, mountPath: /o}]
    lifecycle:
      preStop: {httpGet: {port: 8080, path: "/healthz?prestop"}}
  - name: sleep
    image: program
    command: [/program, trap, -out, /o/sleep, -name, main]
    volumeMounts: [{name: o, mountPath: /o}]
    lifecycle:
      postStart: {sleep: {seconds: 1}}
      preStop: {sleep: {seconds: 4}}
`

func hooks(n node) {
	p := n.pod("hooks")
	p.status("Running")
	p.until("the postStart hook ran", func(*cli.DescriptionDocument) string {
		if w := words(n.trapped("exec")); !slices.Contains(w, "post end") {
			return strings.Join(w, ", ")
		}
		return ""
	})
	before := len(n.trapped("exec"))
	removed := n.now()
	p.remove()
	p.Logf("hooks: gone after %.0f s", p.gone().Seconds())
	p.same("exec before the end", []string{"pre start", "pre end", "main TERM", "main end"}, words(n.trapped("exec")[before:]))
	served := n.sh("cat %s/http", sharedDir)
	asked, ended := strings.Index(served, "GET /healthz?prestop"), strings.Index(served, "serve ends")
	p.holds("httpGet before the end", asked >= 0 && ended > asked, served)
	slept := n.trapped("sleep")
	p.holds("sleep of 4 s before the end", len(slept) == 3 && slept[1].word == "TERM" && slept[1].at.Sub(removed) >= 4*time.Second, slept)
}

// hookedPod answers another pod's hook on an address of the node.
const hookedPod = `
apiVersion: v1
kind: Pod
metadata: {name: hooked}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  volumes: [{name: o, hostPath: {path: /var/tmp/e2e, type: Directory}}]
  containers:
  - {name: c, image: program, command: [/program, serve, -http, "127.0.0.1:18081", -out, /o/hooked], volumeMounts: [{name: o, mountPath: /o}]}
`

const hookingPod = `
apiVersion: v1
kind: Pod
metadata: {name: hooking}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: program
    command: [/program, trap]
    lifecycle: {postStart: {httpGet: {host: 127.0.0.1, port: 18081, path: "/healthz?poststart"}}}
`

func hookOverHTTP(n node) {
	n.pod("hooked").until("it serves", func(*cli.DescriptionDocument) string {
		if said := n.sh("cat %s/hooked 2>/dev/null; true", sharedDir); !strings.Contains(said, "serves") {
			return said
		}
		return ""
	})
	n.put("hooking.yaml", manifest(hookingPod))
	p := n.pod("hooking")
	d := p.status("Running")
	served := n.sh("cat %s/hooked", sharedDir)
	p.same("its one start was told", 1, strings.Count(served, "GET /healthz?poststart"))
	p.same("restarts", 0, find(d, "c").Restarts)
}

const postFailPod = `
apiVersion: v1
kind: Pod
metadata: {name: postfail}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: program
    command: [/program, trap]
    lifecycle: {postStart: {exec: {command: [/program, exit, "9"]}}}
`

func postStartFails(n node) {
	p := n.pod("postfail")
	p.event("FailedPostStartHook", "")
	p.until("started again", func(d *cli.DescriptionDocument) string {
		if d.Restarts == 0 {
			return "no restart"
		}
		return ""
	})
}

const slowHookPod = `
apiVersion: v1
kind: Pod
metadata: {name: slowhook}
spec:
  terminationGracePeriodSeconds: 6
  volumes: [{name: o, hostPath: {path: /var/tmp/e2e, type: Directory}}]
  containers:
  - name: c
    image: program
    command: [/program, trap, -out, /o/slow, -name, main]
    volumeMounts: [{name: o, mountPath: /o}]
    lifecycle: {preStop: {exec: {command: [/program, ignore-term]}}}
`

// slowHook: the hook's time is the pod's grace period; then the container has
// two seconds for itself.
func slowHook(n node) {
	p := n.pod("slowhook")
	p.status("Running")
	removed := n.now()
	p.remove()
	p.Logf("slowhook: gone after %.0f s", p.gone().Seconds())
	lines := n.trapped("slow")
	p.holds("TERM comes after the grace period of 6 s, within 30 s",
		len(lines) >= 2 && lines[1].word == "TERM" && lines[1].at.Sub(removed) >= 5*time.Second && lines[1].at.Sub(removed) < 30*time.Second, lines)
}

const stubbornPod = `
apiVersion: v1
kind: Pod
metadata: {name: stubborn}
spec:
  terminationGracePeriodSeconds: 5
  containers: [{name: c, image: program, command: [/program, ignore-term]}]
`

func stubborn(n node) {
	p := n.pod("stubborn")
	p.status("Running")
	p.logged("c", "ignoring SIGTERM")
	p.remove()
	took := p.gone()
	p.holds("it is killed after the grace period of 5 s, within a minute", took >= 4*time.Second && took < time.Minute, took)
}

const signalPod = `
apiVersion: v1
kind: Pod
metadata: {name: signal}
spec:
  os: {name: linux}
  terminationGracePeriodSeconds: 10
  volumes: [{name: o, hostPath: {path: /var/tmp/e2e, type: Directory}}]
  containers:
  - name: c
    image: program
    command: [/program, trap, -out, /o/signal, -name, main]
    volumeMounts: [{name: o, mountPath: /o}]
    lifecycle: {stopSignal: SIGUSR1}
`

func stopSignal(n node) {
	p := n.pod("signal")
	p.status("Running")
	p.remove()
	p.gone()
	lines := words(n.trapped("signal"))
	p.holds("the container got USR1", slices.Contains(lines, "main USR1") && !slices.Contains(lines, "main TERM"), fmt.Sprint(lines))
}
