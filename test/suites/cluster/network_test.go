//go:build cluster

package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/test/harness/board"
)

// servesOn is a pod of a node that answers on port 80 with its name, at
// /cgi-bin/who with whom it sees, and has a shell.
func servesOn(node, pod, more string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {app: %[1]s}}
spec:
  nodeName: %s
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: %q, command: [sh, -c, %q], %s}]
---
`, pod, node, board.BusyboxImage, "mkdir -p /w/cgi-bin && cd /w && echo "+pod+` >index.html && printf '#!/bin/sh\necho; echo $REMOTE_ADDR\n' >cgi-bin/who && `+
		"chmod +x cgi-bin/who && exec httpd -f -p 0.0.0.0:80 -h /w", more)
}

// serves is such a pod of the node.
func serves(pod, more string) string { return servesOn(name, pod, more) }

// networkLab is prepareLab for a board with settings of the pods' network, in
// a cluster that lets nodes read what its network is made of.
func networkLab(t *testing.T, settings string) lab {
	t.Helper()
	l := prepareLab(t)
	l.settings = fmt.Sprintf("---\napiVersion: tinylet.dev/v1alpha1\nkind: TinyletConfiguration\nnetwork: {%s}\n", settings)
	l.c.Must(t, "create", "clusterrolebinding", "tinylet-network", "--clusterrole=system:node-proxier", "--group=system:nodes")
	return l
}

// get asks a URL from a pod of the board, or with "" from the board itself, and
// answers what came, or why nothing did.
func (l lab) get(pod, url string) string {
	l.Helper()
	script := "wget -T 10 -q -O - " + url + " 2>&1; true"
	if pod != "" {
		script = "tinylet exec " + pod + " -- " + script
	}
	return l.sh(script)
}

// rulesProgram is the board's program that shows what rules the kernel has.
func rulesProgram(t *testing.T) board.File {
	t.Helper()
	return program(t, "rules")
}

// program is a program for the board, from the folder of that name.
func program(t *testing.T, name string) board.File {
	t.Helper()
	env, err := arch().GoEnv()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), name)
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", file, "./"+name)
	build.Env = append(os.Environ(), env...)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the program %s: %v\n%s", name, err, out)
	}
	return board.File{Path: "/usr/bin/" + name, Mode: 0o755, Source: file}
}

// TestPodNetwork is the pods' network of a node to which a controller has given
// it, on a board without any program for networks.
func TestPodNetwork(t *testing.T) {
	l := prepareLab(t)
	l.vm = l.bootWith(append(l.joinFiles(l.bootstrap()), program(t, "shaped")))
	l.until("the node is Ready", l.nodeReady)
	var node corev1.Node
	l.c.Get(t, &node, "node", name)
	if !strings.HasPrefix(node.Spec.PodCIDR, "10.244.") || !strings.Contains(l.sh("cat /etc/cni/net.d/10-tinylet.conflist"), node.Spec.PodCIDR) {
		t.Fatalf("the node has %q", node.Spec.PodCIDR)
	}
	limits := "{app: a}, annotations: {kubernetes.io/ingress-bandwidth: 400M, kubernetes.io/egress-bandwidth: 200M}"
	l.c.Apply(t, strings.Replace(serves("a", ""), "{app: a}", limits, 1)+serves("b", "ports: [{containerPort: 80, hostPort: 8080}]"))
	l.until("two pods run", func() string {
		return strings.TrimSpace(l.running("app=a", 1) + " " + l.running("app=b", 1))
	})
	b, own := l.pod("b").Status.PodIP, l.c.BoardNet(t, name).Address.Addr().String()
	inside := func(pod string) string { return "tinylet exec " + pod + " -- " }
	t.Run("pod to pod", func(t *testing.T) {
		if got := strings.TrimSpace(l.with(t).sh(inside("a") + "wget -T 10 -q -O - http://" + b)); got != "b" {
			t.Errorf("answered %q", got)
		}
	})
	t.Run("pod to the uplink", func(t *testing.T) {
		l := l.with(t)
		if got := strings.TrimSpace(l.sh(inside("a") + "wget -T 10 -q -O - http://" + l.c.Seen(t))); got != own {
			t.Errorf("seen as %q, want the board's %s", got, own)
		}
	})
	t.Run("host port from outside", func(t *testing.T) {
		if got := l.c.Ask(t, "http://"+own+":8080/"); got != "b" {
			t.Errorf("answered %q\n%s", got, l.with(t).sh("tinylet net; wget -T 5 -q -O - http://127.0.0.1:8080; grep . /run/tinylet/cni/*/owners/*; cat /etc/cni/net.d/10-tinylet.conflist"))
		}
	})
	t.Run("bandwidth", func(t *testing.T) {
		got := l.with(t).sh("shaped")
		t.Logf("limits:\n%s", got)
		into, outOf := regexp.MustCompile(`(?m)^host veth\S+ 400000000 `), regexp.MustCompile(`(?m)^cni-\S+ eth0 200000000 `)
		if len(strings.Split(strings.TrimSpace(got), "\n")) != 2 || !into.MatchString(got) || !outOf.MatchString(got) {
			t.Errorf("limits are\n%s", got)
		}
	})
	t.Run("Services are not watched unless they are carried", func(t *testing.T) {
		for resource, bytes := range l.with(t).watchedServices() {
			if bytes > 0 {
				t.Errorf("%d bytes of a watch of %s", bytes, resource)
			}
		}
	})
	t.Run("nothing left", func(t *testing.T) {
		l := l.with(t)
		l.c.Must(t, "delete", "pod", "a", "b", "--wait=true", "--timeout=4m")
		l.until("no link and no lease", func() string {
			return strings.TrimSpace(l.sh("ls /sys/class/net | grep veth; find /run/tinylet/cni /run/netns -type f -o -type l 2>/dev/null; true"))
		})
	})
}
