//go:build board

package standalone

import (
	"fmt"
	"strings"

	"github.com/tinylet/tinylet/cmd/tinylet/cli"
)

// containerScene is how containers start, end and start again, and what they
// are given.
func containerScene() scene {
	return scene{
		name: "containers",
		before: func(n node) {
			n.sh("rm -f %s/later.yaml", objectsDir)
		},
		pods: map[string]string{
			"env": envPod, "missing": missingPod, "messages": messagesPod, "rules": rulesPod,
			"onfailure": onFailurePod, "all": restartAllPod, "deadline": deadlinePod, "terminal": terminalPod,
		},
		checks: []check{
			{"a missing ConfigMap is waited for", missingObject},
			{"environment of all kinds", environment},
			{"command, working folder and limits", commandLine},
			{"termination messages", terminationMessages},
			{"restart rules by exit code", restartRules},
			{"a rule restarts all containers", restartAll},
			{"active deadline", activeDeadline},
			{"terminal and input", terminal},
		},
	}
}

const envPod = `
apiVersion: v1
kind: Pod
metadata: {name: env, labels: {app: shop}, annotations: {note: hello}}
spec:
  restartPolicy: Never
  volumes: [{name: env, emptyDir: {}}]
  initContainers:
  - name: write
    image: busybox
    command: [sh, -c, "printf \"FROM_FILE='filed'\\nOTHER='x'\\n\" > /env/vars"]
    volumeMounts: [{name: env, mountPath: /env}]
  containers:
  - name: c
    image: program
    command: [/program, report, -cgroup, memory.max, -cgroup, cpu.max]
    args: ["$(PLAIN)", "$$(PLAIN)", "$(NONE)"]
    workingDir: /work
    resources: {requests: {cpu: 100m, memory: 20Mi}, limits: {cpu: 500m, memory: 64Mi}}
    envFrom:
    - {prefix: P_, configMapRef: {name: settings}}
    - secretRef: {name: keys}
    - configMapRef: {name: none, optional: true}
    env:
    - {name: PLAIN, value: plain}
    - {name: TWICE, value: "$(PLAIN)-$(PLAIN)"}
    - {name: ESCAPED, value: "$$(PLAIN)"}
    - {name: UNKNOWN, value: "$(NONE)"}
    - {name: COLOR, valueFrom: {configMapKeyRef: {name: settings, key: color}}}
    - {name: PASSWORD, valueFrom: {secretKeyRef: {name: keys, key: password}}}
    - {name: OPTIONAL, valueFrom: {secretKeyRef: {name: keys, key: none, optional: true}}}
    - {name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    - {name: NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
    - {name: POD_UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}
    - {name: LABEL, valueFrom: {fieldRef: {fieldPath: "metadata.labels['app']"}}}
    - {name: NOTE, valueFrom: {fieldRef: {fieldPath: "metadata.annotations['note']"}}}
    - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
    - {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
    - {name: HOST_IP, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}
    - {name: CPU, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1m}}}
    - {name: MEMORY, valueFrom: {resourceFieldRef: {resource: requests.memory, divisor: 1Mi}}}
    - {name: FILE, valueFrom: {fileKeyRef: {volumeName: env, path: vars, key: FROM_FILE}}}
`

func environment(n node) {
	p := n.pod("env")
	d := p.status("Completed")
	r := p.report("c")
	want := map[string]string{
		"PLAIN": "plain", "TWICE": "plain-plain", "ESCAPED": "$(PLAIN)", "UNKNOWN": "$(NONE)",
		"COLOR": "blue", "PASSWORD": "s3cret", "P_color": "blue", "P_shape": "round", "password": "s3cret",
		"NAME": "env-board", "NAMESPACE": "default", "POD_UID": d.UID, "LABEL": "shop", "NOTE": "hello", "NODE": "board",
		"POD_IP": d.PodIP, "HOST_IP": d.Object.Status.HostIP, "CPU": "500", "MEMORY": "20", "FILE": "filed",
	}
	got := map[string]string{}
	for name := range want {
		got[name] = r.Env[name]
	}
	p.same("environment", want, got)
	_, optional := r.Env["OPTIONAL"]
	p.same("variable of an absent optional key is set", false, optional)
	p.holds("an address of the pod and one of the node", d.PodIP != "" && d.Object.Status.HostIP != "", d.Object.Status)
}

func commandLine(n node) {
	p := n.pod("env")
	r := p.report("c")
	p.same("arguments", "plain $(PLAIN) $(NONE)", strings.Join(r.Args[max(0, len(r.Args)-3):], " "))
	p.same("working folder", "/work", r.Dir)
	p.same("memory.max", "67108864", r.Cgroup["memory.max"])
	p.same("cpu.max", "50000 100000", r.Cgroup["cpu.max"])
}

const missingPod = `
apiVersion: v1
kind: Pod
metadata: {name: missing}
spec:
  restartPolicy: Never
  containers:
  - name: c
    image: program
    command: [/program, exit, -say, "$(WORD)", "0"]
    env: [{name: WORD, valueFrom: {configMapKeyRef: {name: later, key: word}}}]
`

func missingObject(n node) {
	p := n.pod("missing")
	d := p.status("CreateContainerConfigError")
	p.holds("the reason names the ConfigMap", strings.Contains(find(d, "c").Message, `"later"`), find(d, "c").Message)
	n.object("later.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: later}, data: {word: arrived}}\n")
	p.status("Completed")
	p.same("what the container read", "arrived", p.log("c"))
}

const messagesPod = `
apiVersion: v1
kind: Pod
metadata: {name: messages}
spec:
  restartPolicy: Never
  containers:
  - {name: standard, image: program, command: [/program, exit, -say, told, -message, /dev/termination-log, "0"]}
  - {name: custom, image: program, terminationMessagePath: /tmp/said, command: [/program, exit, -say, elsewhere, -message, /tmp/said, "0"]}
  - {name: fallback, image: program, terminationMessagePolicy: FallbackToLogsOnError, command: [/program, exit, -say, last words, "3"]}
  - {name: preferred, image: program, terminationMessagePolicy: FallbackToLogsOnError, command: [/program, exit, -say, from the file, -message, /dev/termination-log, "3"]}
  - {name: success, image: program, terminationMessagePolicy: FallbackToLogsOnError, command: [/program, exit, -say, nothing, "0"]}
`

func terminationMessages(n node) {
	p := n.pod("messages")
	d := p.until("all containers ended", func(d *cli.DescriptionDocument) string {
		for _, c := range d.Containers {
			if c.State != "Terminated" {
				return c.Name + " is " + c.State
			}
		}
		return ""
	})
	got := map[string]string{}
	for _, c := range d.Containers {
		got[c.Name] = fmt.Sprintf("%d %s", *c.ExitCode, strings.TrimSpace(c.Message))
	}
	p.same("messages", map[string]string{
		"standard": "0 told", "custom": "0 elsewhere", "fallback": "3 last words", "preferred": "3 from the file", "success": "0 ",
	}, got)
	p.same("phase", "Failed", d.Phase)
}

const rulesPod = `
apiVersion: v1
kind: Pod
metadata: {name: rules}
spec:
  restartPolicy: Never
  volumes: [{name: m, emptyDir: {}}]
  containers:
  - name: listed
    image: program
    command: [/program, exit, -once, /m/listed, "42"]
    volumeMounts: [{name: m, mountPath: /m}]
    restartPolicy: Never
    restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [42]}}]
  - name: other
    image: program
    command: [/program, exit, -once, /m/other, "7"]
    volumeMounts: [{name: m, mountPath: /m}]
    restartPolicy: Never
    restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [42]}}]
  - name: own
    image: program
    command: [/program, exit, -once, /m/own, "5"]
    volumeMounts: [{name: m, mountPath: /m}]
    restartPolicy: OnFailure
`

const onFailurePod = `
apiVersion: v1
kind: Pod
metadata: {name: onfailure}
spec:
  restartPolicy: OnFailure
  volumes: [{name: m, emptyDir: {}}]
  containers:
  - {name: c, image: program, command: [/program, exit, -once, /m/c, "5"], volumeMounts: [{name: m, mountPath: /m}]}
`

func restartRules(n node) {
	p := n.pod("rules")
	d := p.until("all containers ended for good", func(d *cli.DescriptionDocument) string {
		if d.Phase != "Failed" && d.Phase != "Succeeded" {
			return "phase " + d.Phase
		}
		return ""
	})
	got := map[string]string{}
	for _, c := range d.Containers {
		if c.ExitCode != nil {
			got[c.Name] = fmt.Sprintf("%d restarts, exit %d", c.Restarts, *c.ExitCode)
		}
	}
	p.same("restarts", map[string]string{
		"listed": "1 restarts, exit 0", "other": "0 restarts, exit 7", "own": "1 restarts, exit 0",
	}, got)
	p.same("phase", "Failed", d.Phase)
	p = n.pod("onfailure")
	d = p.status("Completed")
	p.same("restarts of OnFailure", 1, d.Restarts)
}

const restartAllPod = `
apiVersion: v1
kind: Pod
metadata: {name: all}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 2
  volumes: [{name: m, hostPath: {path: /var/tmp/e2e/all, type: DirectoryOrCreate}}]
  initContainers:
  - {name: before, image: program, command: [/program, trap, -life, 1ms, -out, /m/log, -name, before], volumeMounts: [{name: m, mountPath: /m}]}
  containers:
  - {name: bystander, image: program, command: [/program, trap, -out, /m/log, -name, bystander], volumeMounts: [{name: m, mountPath: /m}]}
  - name: trigger
    image: program
    command: [/program, exit, -after, 2s, -once, /m/once, "42"]
    volumeMounts: [{name: m, mountPath: /m}]
    restartPolicy: Never
    restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]
`

func restartAll(n node) {
	p := n.pod("all")
	p.until("the trigger ended well the second time", func(d *cli.DescriptionDocument) string {
		if c := find(d, "trigger"); c.ExitCode == nil || *c.ExitCode != 0 {
			return fmt.Sprintf("%s %s", c.State, c.Reason)
		}
		return ""
	})
	starts := map[string]int{}
	for _, e := range n.trapped("all/log") {
		if e.word == "start" {
			starts[e.who]++
		}
	}
	p.same("starts", map[string]int{"before": 2, "bystander": 2}, starts)
}

const deadlinePod = `
apiVersion: v1
kind: Pod
metadata: {name: deadline}
spec:
  activeDeadlineSeconds: 10
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: program, command: [/program, trap]}]
`

func activeDeadline(n node) {
	n.pod("deadline").rejected("DeadlineExceeded")
}

const terminalPod = `
apiVersion: v1
kind: Pod
metadata: {name: terminal}
spec:
  restartPolicy: Never
  containers:
  - {name: with, image: program, tty: true, stdin: true, command: [/program, report]}
  - {name: without, image: program, command: [/program, report]}
`

func terminal(n node) {
	p := n.pod("terminal")
	p.same("output of a container with a terminal is one", true, p.report("with").Terminal)
	p.same("output of a container without one is one", false, p.report("without").Terminal)
}
