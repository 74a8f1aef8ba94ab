//go:build cluster

package addons

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/test/harness/board"
	"github.com/tinylet/tinylet/test/harness/board/imagetar"
	"github.com/tinylet/tinylet/test/harness/controlplane"
)

const (
	name     = "edge-one"
	memoryMB = 1024
	// patience is how long a check waits for what a fast board does in seconds.
	patience = 4 * time.Minute
	binary   = "../../../bin/tinylet-arm64"
	folder   = "/var/lib/tinylet/images/"
)

// config is the agent's, as kubeadm writes it, with the cluster's DNS server
// and a serving certificate of the cluster.
const config = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
failSwapOn: false
authentication: {x509: {clientCAFile: /etc/kubernetes/pki/ca.crt}}
rotateCertificates: true
serverTLSBootstrap: true
clusterDNS: [` + controlplane.DNS + `]
clusterDomain: cluster.local
resolvConf: /etc/tinylet/resolv.conf
---
apiVersion: tinylet.dev/v1alpha1
kind: TinyletConfiguration
network: {mode: %s}
`

const arguments = `TINYLET_ARGS="--config /etc/tinylet/config.yaml --kubeconfig /etc/kubernetes/kubelet.conf --bootstrap-kubeconfig /etc/kubernetes/bootstrap-kubelet.conf"
`

// lab is a control plane with one board.
type lab struct {
	*testing.T
	c  *controlplane.Cluster
	vm *board.VM
}

// step is a part of a test.
type step struct {
	name   string
	needed bool // by those after it
	test   func(lab)
}

// run runs steps as subtests until one fails that the later ones need.
func (l lab) run(t *testing.T, steps ...step) {
	t.Helper()
	for _, s := range steps {
		if !t.Run(s.name, func(t *testing.T) {
			l := l
			l.T = t
			s.test(l)
		}) && s.needed {
			return
		}
	}
}

// start starts a control plane and a board that joins it, with tinylet's
// network in a mode.
func start(t *testing.T, mode string) lab {
	t.Helper()
	im, err := board.Prepare(t.Context(), board.Options{Arch: board.ARM64, Progress: lines{t}})
	if err != nil {
		t.Fatal(err)
	}
	l := lab{T: t, c: controlplane.Start(t, controlplane.Options{})}
	console, err := os.Create(filepath.Join(t.ArtifactDir(), "console.log"))
	if err != nil {
		t.Fatal(err)
	}
	l.vm, err = board.Boot(t.Context(), im, board.VMOptions{
		MemoryMB: memoryMB, Network: l.c.BoardNet(t, name), Console: console,
		Files: slices.Concat(board.TinyletFiles(binary), []board.File{
			{Path: "/etc/tinylet/config.yaml", Mode: 0o644, Data: fmt.Appendf(nil, config, mode)},
			{Path: "/etc/tinylet/resolv.conf", Mode: 0o644, Data: fmt.Appendf(nil, "nameserver %s\n", l.c.HostAddress())},
			{Path: "/etc/default/tinylet", Mode: 0o644, Data: []byte(arguments)},
			{Path: "/etc/kubernetes/pki/ca.crt", Mode: 0o644, Data: l.c.CA()},
			{Path: "/etc/kubernetes/bootstrap-kubelet.conf", Mode: 0o600, Data: l.c.Bootstrap(l.c.Server(), l.c.Token(t))},
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.end()
		_ = console.Close()
	})
	if err := l.vm.WaitBooted(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.until("the node has joined", func() string {
		if l.node().Name == "" {
			return "there is no Node"
		}
		return ""
	})
	l.approve()
	return l
}

// approve approves the request for a serving certificate, as an operator of
// the cluster does.
func (l lab) approve() {
	l.Helper()
	l.until("the node's serving certificate is approved", func() string {
		request := l.c.Must(l.T, "get", "certificatesigningrequests", "--field-selector=spec.signerName=kubernetes.io/kubelet-serving", "--output=name")
		if request == "" {
			return "there is no request"
		}
		l.c.Must(l.T, append([]string{"certificate", "approve"}, strings.Fields(request)...)...)
		return ""
	})
}

// images puts images into the agent's folder of images and waits until they
// are imported.
func (l lab) images(images ...imagetar.Image) {
	l.Helper()
	for _, im := range images {
		var b bytes.Buffer
		if err := imagetar.Write(&b, im); err != nil {
			l.Fatal(err)
		}
		size, archive := b.Len(), strings.NewReplacer("/", "-", ":", "-").Replace(im.Name)+".tar"
		if err := l.vm.Put(l.Context(), folder+archive, &b, 0o644); err != nil {
			l.Fatal(err)
		}
		l.until(fmt.Sprintf("%s of %d MB is imported", im.Name, size>>20), func() string {
			if !slices.Contains(strings.Fields(l.sh("ctr -n k8s.io images ls -q")), im.Name) {
				return "it is not"
			}
			return ""
		})
	}
}

// nft returns the files of the programs nft and iptables, with the libraries that it needs.
func nft(t *testing.T) []imagetar.File {
	t.Helper()
	files, err := board.PackageFiles(t.Context(), board.Options{Arch: board.ARM64, Progress: lines{t}}, "nftables")
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// node is the board's Node, or an empty one before it has joined.
func (l lab) node() corev1.Node {
	l.Helper()
	var list corev1.NodeList
	l.c.Get(l.T, &list, "nodes")
	if len(list.Items) != 1 {
		return corev1.Node{}
	}
	return list.Items[0]
}

// ready waits until the node is Ready and has a network for its pods, and
// leads the control plane to that.
func (l lab) ready() {
	l.Helper()
	l.until("the node is Ready", func() string {
		for _, c := range l.node().Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
				return c.Message
			}
		}
		return ""
	})
	l.c.Route(l.T, l.node().Spec.PodCIDR, name)
}

// end keeps the logs of the board and ends it.
func (l lab) end() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.Context()), time.Minute)
	defer cancel()
	out, err := l.vm.Run(ctx, "sh", "-c", "cat /var/log/tinylet.log; tinylet ps; tinylet events; df; cat /proc/meminfo")
	if err != nil {
		l.Errorf("keep the logs: %v", err)
	} else if err := os.WriteFile(filepath.Join(l.ArtifactDir(), "tinylet.log"), out.Stdout, 0o644); err != nil {
		l.Error(err)
	}
	if l.Failed() {
		console := l.vm.ConsoleLog()
		l.Logf("end of the console:\n%s", console[max(0, len(console)-3000):])
		l.Logf("end of tinylet's log:\n%s", out.Stdout[max(0, len(out.Stdout)-8000):])
	}
	if err := l.vm.Close(); err != nil {
		l.Error(err)
	}
}

// until waits until missing reports nothing.
func (l lab) until(what string, missing func() string) {
	l.Helper()
	began := time.Now()
	for {
		m := missing()
		if m == "" {
			l.Logf("%s: after %.1f s", what, time.Since(began).Seconds())
			return
		}
		if time.Since(began) > patience {
			l.Fatalf("not within %v: %s: %s", patience, what, m)
		}
		time.Sleep(time.Second)
	}
}

// running waits until so many pods of a namespace that labels select are
// ready. After a failure it logs what the others wait for, and what they wrote.
func (l lab) running(namespace, selector string, want int) {
	l.Helper()
	l.Cleanup(func() {
		if !l.Failed() {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(l.Context()), time.Minute)
		defer cancel()
		for _, args := range [][]string{{"describe", "pods"}, {"logs", "--tail=40", "--all-containers", "--prefix"}} {
			out, err := l.c.Kubectl(ctx, append(args, "--namespace="+namespace, "--selector="+selector)...)
			l.Logf("kubectl %s: %v\n%s", args[0], err, out)
		}
	})
	l.until(fmt.Sprintf("%d pods of %s in %s are ready", want, selector, namespace), func() string {
		var list corev1.PodList
		l.c.Get(l.T, &list, "pods", "--selector="+selector, "--namespace="+namespace)
		ready, others := 0, []string{}
		for _, p := range list.Items {
			if slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
			}) {
				ready++
				continue
			}
			others = append(others, fmt.Sprintf("%s %s", p.Name, p.Status.Phase))
		}
		if ready == want && len(others) == 0 {
			return ""
		}
		return fmt.Sprintf("%d are, and not %v", ready, others)
	})
}

// sh runs a script on the board.
func (l lab) sh(script string) string {
	l.Helper()
	out, err := l.vm.Shell(l.Context(), script)
	if err != nil {
		l.Fatal(err)
	}
	return out
}

// inside runs a script in a pod of the namespace default, by way of the API
// server, and returns what it wrote, or why it failed.
func (l lab) inside(pod, script string) string {
	l.Helper()
	out, err := l.c.Kubectl(l.Context(), "exec", pod, "--", "sh", "-c", script)
	if err != nil {
		return err.Error()
	}
	return out
}

// built is the contents of a program that make addons-programs builds.
func built(t *testing.T, program string) []byte {
	t.Helper()
	data, err := os.ReadFile(builtPath(t, program))
	if err != nil {
		t.Fatalf("%v; make addons-programs builds it", err)
	}
	return data
}

func builtPath(t *testing.T, program string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", "..", ".cache", "addons", program))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// manifest is one of the folder manifests.
func manifest(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("manifests", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// lines is a test's log as a writer of lines.
type lines struct{ t *testing.T }

func (l lines) Write(p []byte) (int, error) {
	l.t.Log(strings.TrimSuffix(string(p), "\n"))
	return len(p), nil
}
