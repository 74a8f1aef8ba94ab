//go:build board

package standalone

import (
	"fmt"
	"strings"

	"github.com/tinylet/tinylet/cmd/tinylet/cli"
)

// faultScene is what pods ask for that cannot be or must not be.
func faultScene() scene {
	return scene{
		name: "volume faults",
		before: func(n node) {
			n.sh(`rm -rf %[1]s && mkdir -p %[1]s/links %[1]s/race/target && ln -s /etc %[1]s/links/out
echo inside > %[1]s/race/target/mark
ln -s /etc %[1]s/race/spare`, sharedDir)
			n.sh("rm -f %s/waited.yaml", objectsDir)
		},
		pods: map[string]string{
			"wrongtype": wrongTypePod, "unknown": unknownPod, "waits": waitsPod, "collide": collidePod,
			"dotdot": dotDotPod, "escape": escapePod, "racer": racerPod, "evicted": evictedPod,
		},
		checks: []check{
			{"a hostPath of another type", wrongType},
			{"a kind of volume that is not built", unknownVolume},
			{"a missing Secret", missingSecret},
			{"projected paths that collide, subPath with ..", badPaths},
			{"a subPath that leads out by a link", escapingLink},
			{"a link that is swapped while it is mounted", swapRace},
			{"an emptyDir over its sizeLimit", overLimit},
			{"a Secret of more than 1 MiB", bigSecret},
		},
		after: func(n node) { n.sh("rm -f %s/big.yaml", objectsDir) },
	}
}

const wrongTypePod = `
apiVersion: v1
kind: Pod
metadata: {name: wrongtype}
spec:
  volumes: [{name: v, hostPath: {path: /etc/hostname, type: Directory}}]
  containers: [{name: c, image: program, command: [/program, trap], volumeMounts: [{name: v, mountPath: /v}]}]
`

func pending(p pod) {
	p.Helper()
	d, err := p.document()
	if err != nil {
		p.Fatal(err)
	}
	p.same("phase", "Pending", d.Phase)
}

func wrongType(n node) {
	p := n.pod("wrongtype")
	p.event("FailedMount", "hostPath type check failed")
	pending(p)
}

const unknownPod = `
apiVersion: v1
kind: Pod
metadata: {name: unknown}
spec:
  volumes: [{name: v, nfs: {server: 192.0.2.1, path: /}}]
  containers: [{name: c, image: program, command: [/program, trap], volumeMounts: [{name: v, mountPath: /v}]}]
`

func unknownVolume(n node) {
	p := n.pod("unknown")
	p.event("FailedMount", "nfs")
	pending(p)
}

const waitsPod = `
apiVersion: v1
kind: Pod
metadata: {name: waits}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{name: v, secret: {secretName: waited}}]
  containers: [{name: c, image: program, command: [/program, file, watch, /v/word], volumeMounts: [{name: v, mountPath: /v}]}]
`

func missingSecret(n node) {
	p := n.pod("waits")
	p.event("FailedMount", `"waited"`)
	pending(p)
	n.object("waited.yaml", "{apiVersion: v1, kind: Secret, metadata: {name: waited}, stringData: {word: arrived}}\n")
	p.status("Running")
	p.logged("c", "arrived")
}

const collidePod = `
apiVersion: v1
kind: Pod
metadata: {name: collide}
spec:
  volumes:
  - name: v
    projected:
      sources:
      - configMap: {name: settings, items: [{key: color, path: same}]}
      - secret: {name: keys, items: [{key: password, path: same}]}
  containers: [{name: c, image: program, command: [/program, trap], volumeMounts: [{name: v, mountPath: /v}]}]
`

const dotDotPod = `
apiVersion: v1
kind: Pod
metadata: {name: dotdot}
spec:
  volumes: [{name: v, emptyDir: {}}]
  containers: [{name: c, image: program, command: [/program, trap], volumeMounts: [{name: v, mountPath: /v, subPath: ../../../../etc}]}]
`

// badPaths: such manifests are refused as they are read, before there is a
// pod, or the pod never runs.
func badPaths(n node) {
	for _, name := range []string{"collide", "dotdot"} {
		p := n.pod(name)
		told := false
		for range 60 {
			if told = strings.Contains(n.sh("tinylet events"), name); told {
				break
			}
			n.sh("sleep 1")
		}
		p.holds("an event tells of it", told, n.sh("tinylet events | tail -n 20"))
		d, err := p.document()
		p.holds("it does not run", err != nil || find(d, "c").State != "Running", d)
	}
}

const escapePod = `
apiVersion: v1
kind: Pod
metadata: {name: escape}
spec:
  volumes: [{name: v, hostPath: {path: /var/tmp/e2e/links}}]
  containers:
  - {name: direct, image: program, command: [/program, file, stat, /v/hostname], volumeMounts: [{name: v, mountPath: /v, subPath: out}]}
  - {name: below, image: program, command: [/program, file, stat, /v/hostname], volumeMounts: [{name: v, mountPath: /v, subPath: out/new}]}
`

func escapingLink(n node) {
	p := n.pod("escape")
	p.until("no container is made", func(d *cli.DescriptionDocument) string {
		for _, c := range d.Containers {
			if c.Reason != "CreateContainerConfigError" {
				return c.Name + " is " + c.State + " " + c.Reason
			}
		}
		return ""
	})
	p.same("nothing was made outside", "", n.sh("ls -d /etc/new 2>/dev/null; true"))
}

const racerPod = `
apiVersion: v1
kind: Pod
metadata: {name: racer}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{name: v, hostPath: {path: /var/tmp/e2e/race}}]
  containers: [{name: c, image: program, command: [/program, swap, -every, 2ms, /v/target, /v/spare], volumeMounts: [{name: v, mountPath: /v}]}]
`

var victimPod = func() string {
	var b strings.Builder
	b.WriteString(`
apiVersion: v1
kind: Pod
metadata: {name: victim}
spec:
  restartPolicy: Never
  volumes: [{name: v, hostPath: {path: /var/tmp/e2e/race}}]
  containers:
`)
	for i := range 10 {
		fmt.Fprintf(&b, "  - {name: c%d, image: program, command: [/program, file, stat, /m/hostname, /m/mark], volumeMounts: [{name: v, mountPath: /m, subPath: target}]}\n", i)
	}
	return b.String()
}()

// swapRace: a container gets the folder or nothing, never the link's target.
func swapRace(n node) {
	p := n.pod("victim")
	n.pod("racer").status("Running")
	n.put("victim.yaml", manifest(victimPod))
	p.until("every container got a folder, or was refused", func(d *cli.DescriptionDocument) string {
		ended := 0
		for _, c := range d.Containers {
			switch {
			case c.State == "Terminated":
				ended++
			case c.Reason != "CreateContainerConfigError" && c.Reason != "CreateContainerError" && c.Reason != "RunContainerError":
				return c.Name + " is " + c.State + " " + c.Reason
			}
		}
		if ended < 3 {
			return fmt.Sprintf("only %d of 10 got it", ended)
		}
		return ""
	})
	got := 0
	for i := range 10 {
		said := p.log(fmt.Sprintf("c%d", i))
		if strings.Contains(said, `"content":"board`) {
			p.Errorf("victim: c%d saw the board's /etc: %s", i, said)
		}
		if strings.Contains(said, "inside") {
			got++
		}
	}
	p.Logf("victim: %d of 10 containers got the folder, none the link's target; refused in between: %s", got,
		n.sh("tinylet events victim | grep -c -i subpath; true"))
}

const evictedPod = `
apiVersion: v1
kind: Pod
metadata: {name: evicted}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{name: v, emptyDir: {sizeLimit: 1Mi}}]
  containers: [{name: c, image: program, command: [/program, fill, -linger, /v/big, "3"], volumeMounts: [{name: v, mountPath: /v}]}]
`

func overLimit(n node) {
	p := n.pod("evicted")
	p.rejected("Evicted")
	p.event("Evicted", "exceeds the limit")
}

func bigSecret(n node) {
	n.sh(`umask 077; { printf 'apiVersion: v1\nkind: Secret\nmetadata: {name: big}\nstringData:\n  text: '; head -c 1100000 /dev/zero | tr '\0' x; echo; } > %s/big.yaml`, objectsDir)
	said := ""
	for range 60 {
		if said = n.sh("{ tinylet events; cat %s; } | grep 'big.yaml.* bytes' | head -n 1 | cut -c 1-300; true", agentLog); said != "" {
			n.Logf("a Secret that is too large is refused: %s", said)
			return
		}
		n.sh("sleep 1")
	}
	n.Error("nothing tells of a Secret that is too large")
}
