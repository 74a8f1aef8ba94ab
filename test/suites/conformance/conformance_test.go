//go:build cluster

package conformance

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/test/harness/board"
	"github.com/tinylet/tinylet/test/harness/board/imagetar"
	"github.com/tinylet/tinylet/test/harness/controlplane"
	"github.com/tinylet/tinylet/test/harness/ginkgo"
)

const (
	name     = "edge-one"
	memoryMB = 1024
	longest  = "6h" // that a run takes
	patience = 6 * time.Minute
	archive  = "/var/lib/tinylet/images/conformance.tar"
	page     = "../../../docs/reference/conformance.md"
	binary   = "../../../bin/tinylet-arm64"
	runtime  = "../../../buildroot/board/common/rootfs-overlay/etc/containerd/config.toml"
)

// testHandler is the runtime handler that upstream's tests of RuntimeClass expect
// on a node.
const testHandler = `
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.test-handler]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.test-handler.options]
  BinaryName = "crun"
  SystemdCgroup = false
`

// config is the agent's.
const config = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
failSwapOn: false
authentication: {x509: {clientCAFile: /etc/kubernetes/pki/ca.crt}}
rotateCertificates: true
---
apiVersion: tinylet.dev/v1alpha1
kind: TinyletConfiguration
network: {services: true}
`

const arguments = `TINYLET_ARGS="--config /etc/tinylet/config.yaml --kubeconfig /etc/kubernetes/kubelet.conf --bootstrap-kubeconfig /etc/kubernetes/bootstrap-kubelet.conf"
`

// TestConformance runs the selected tests against a board. CONFORMANCE_FOCUS, a
// regular expression, runs only those that match it. CONFORMANCE_TIME, such as
// 30m, ends the run after that time, whatever was not run by then. The page of
// the documentation is written by a run without both, and by any run with
// CONFORMANCE_RECORD. CONFORMANCE_EARLIER names the reports junit_01.xml of an earlier
// run of the same programs, and of tests that were run again after it: tests that
// passed are not run again.
func TestConformance(t *testing.T) {
	rules, err := ParseRules(read(t, "selection.yaml"), read(t, "exceptions.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	names, err := ParseList(said(t, exec.CommandContext(t.Context(), built(t, "e2e.test"), "--list-tests")))
	if err != nil {
		t.Fatal(err)
	}
	focus, limit := os.Getenv("CONFORMANCE_FOCUS"), os.Getenv("CONFORMANCE_TIME")
	limited, partial := limit != "", focus+limit != ""
	choice, err := rules.Choose(names, focus)
	if err != nil {
		t.Fatal(err)
	}
	if len(choice.Run) == 0 {
		t.Fatalf("no selected test matches %q", focus)
	}
	t.Logf("%d of %d selected tests", len(choice.Run), choice.Selected)

	s := start(t)
	run := Run{Date: time.Now(), Choice: choice, Kubernetes: controlplane.Version, Board: fmt.Sprintf("QEMU virt, cortex-a72, 2 CPUs, %d MB", memoryMB)}
	info := s.node().Status.NodeInfo
	run.Agent, run.Runtime = info.KubeletVersion, strings.Replace(info.ContainerRuntimeVersion, "://", " ", 1)
	limit = cmp.Or(limit, longest)
	if earlier := strings.Fields(os.Getenv("CONFORMANCE_EARLIER")); len(earlier) > 0 {
		run.Results = report(t, earlier[0], choice.Run)
		for _, path := range earlier[1:] {
			run.Results = Merge(run.Results, report(t, path, choice.Run))
		}
	} else {
		run.Results = s.ginkgo(choice.Run, limit, processes)
	}
	if names := rules.Again(run.Results); !limited && len(names) > 0 { // a limit is of the whole run
		t.Logf("%d tests are run again, alone", len(names))
		run.Results = Merge(run.Results, s.ginkgo(names, limit, 1))
	}
	written := filepath.Join(t.ArtifactDir(), "conformance.md")
	if !partial || os.Getenv("CONFORMANCE_RECORD") != "" {
		written = page
	}
	if err := os.WriteFile(written, []byte(run.Page(rules)), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, o := range []ginkgo.Outcome{ginkgo.Passed, ginkgo.Failed, ginkgo.Skipped, ginkgo.NotRun} {
		t.Logf("%s: %d", o, run.count(o))
	}
	for _, x := range rules.Unexpected(run.Results, limited) {
		t.Errorf("%s: %s: %s", x.Outcome, x.Name, x.Message)
	}
}

// suiteOn is a cluster whose node is a board.
type suiteOn struct {
	*testing.T
	c  *controlplane.Cluster
	vm *board.VM
}

// start starts a control plane and a board that joins it and has the images.
func start(t *testing.T) suiteOn {
	t.Helper()
	im, err := board.Prepare(t.Context(), board.Options{Arch: board.ARM64, Progress: lines{t}})
	if err != nil {
		t.Fatal(err)
	}
	s := suiteOn{T: t, c: controlplane.Start(t, controlplane.Options{})}
	// The agent reads Services and EndpointSlices for the node's pods.
	s.c.Must(t, "create", "clusterrolebinding", "tinylet-network", "--clusterrole=system:node-proxier", "--group=system:nodes")
	s.vm, err = board.Boot(t.Context(), im, board.VMOptions{
		MemoryMB: memoryMB, Network: s.c.BoardNet(t, name),
		Files: slices.Concat(board.TinyletFiles(binary), []board.File{
			{Path: "/etc/tinylet/config.yaml", Mode: 0o644, Data: []byte(config)},
			{Path: "/etc/default/tinylet", Mode: 0o644, Data: []byte(arguments)},
			{Path: "/etc/containerd/config.toml", Mode: 0o644, Data: append(read(t, runtime), testHandler...)},
			{Path: "/etc/kubernetes/pki/ca.crt", Mode: 0o644, Data: s.c.CA()},
			{Path: "/etc/kubernetes/bootstrap-kubelet.conf", Mode: 0o600, Data: s.c.Bootstrap(s.c.Server(), s.c.Token(t))},
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.end)
	if err := s.vm.WaitBooted(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.images()
	s.until("the node is Ready", func() string {
		for _, c := range s.node().Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				return ""
			}
		}
		return "it is not"
	})
	s.c.Route(t, s.node().Spec.PodCIDR, name)
	return s
}

// bash returns Debian's static Bash.
func (s suiteOn) bash() []byte {
	s.Helper()
	files, err := board.PackageFiles(s.Context(), board.Options{Arch: board.ARM64, Progress: lines{s.T}}, "bash")
	if err != nil {
		s.Fatal(err)
	}
	for _, f := range files {
		if f.Name == "usr/bin/bash-static" {
			return f.Data
		}
	}
	s.Fatal("the packages of bash have no usr/bin/bash-static")
	return nil
}

// images puts the images into the agent's folder of images and waits until
// they are imported.
func (s suiteOn) images() {
	s.Helper()
	busybox, err := s.vm.Get(s.Context(), "/usr/bin/busybox")
	if err != nil {
		s.Fatal(err)
	}
	names := strings.Fields(said(s.T, exec.CommandContext(s.Context(), built(s.T, "e2e.test"), "--list-images")))
	images, err := Images(names, "arm64", Programs{
		Busybox: busybox, Agnhost: read(s.T, built(s.T, "agnhost")), AgnhostUpstream: read(s.T, built(s.T, "agnhost-upstream")),
		Nonewprivs: read(s.T, built(s.T, "nonewprivs")), Bash: s.bash(),
		Certificate: read(s.T, built(s.T, "localhost.crt")), Key: read(s.T, built(s.T, "localhost.key")),
	})
	if err != nil {
		s.Fatal(err)
	}
	var b bytes.Buffer
	if err := imagetar.Write(&b, images...); err != nil {
		s.Fatal(err)
	}
	s.sh("mkdir -p " + filepath.Dir(archive))
	began := time.Now()
	if err := s.vm.Put(s.Context(), archive, &b, 0o644); err != nil {
		s.Fatal(err)
	}
	s.Logf("the archive of %d images is on the board after %.1f s", len(images), time.Since(began).Seconds())
	s.until("the images are imported", func() string {
		have := strings.Fields(s.sh("ctr -n k8s.io images ls -q"))
		for _, im := range images {
			if !slices.Contains(have, im.Name) {
				return im.Name + " is not there"
			}
		}
		return ""
	})
}

// node is the board's Node, or an empty one before it has joined.
func (s suiteOn) node() corev1.Node {
	s.Helper()
	var list corev1.NodeList
	s.c.Get(s.T, &list, "nodes")
	if len(list.Items) != 1 {
		return corev1.Node{}
	}
	return list.Items[0]
}

// ginkgo runs tests by their names, several at a time and for a limited time, and
// returns the result of each.
func (s suiteOn) ginkgo(names []string, limit string, processes int) []ginkgo.Result {
	s.Helper()
	dir := filepath.Join(s.ArtifactDir(), fmt.Sprintf("%d-at-a-time", processes))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		s.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "ginkgo.log"))
	if err != nil {
		s.Fatal(err)
	}
	defer log.Close()
	cmd := s.c.Beside(s.T, s.Context(), built(s.T, "ginkgo"), "run",
		fmt.Sprint("--procs=", processes), "--timeout="+limit, "--no-color", "--silence-skips", "--keep-going",
		"--focus="+Focus(names), built(s.T, "e2e.test"), "--",
		"--provider=skeleton", "--num-nodes=1", "--dump-logs-on-failure=false", "--report-dir="+dir,
		"--kubeconfig="+s.c.AdminKubeconfig())
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	began := time.Now()
	ended := cmd.Run()
	s.Logf("ginkgo ended after %.0f s: %v", time.Since(began).Seconds(), ended)
	path := filepath.Join(dir, "junit_01.xml")
	if _, err := os.Stat(path); err != nil {
		s.Fatalf("%v; the end of ginkgo.log:\n%s", errors.Join(ended, err), tail(read(s.T, log.Name())))
	}
	return report(s.T, path, names)
}

// report returns the results of tests from a JUnit report.
func report(t *testing.T, path string, names []string) []ginkgo.Result {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	results, err := ginkgo.ReadJUnit(file)
	if err != nil {
		t.Error(err)
	}
	return ginkgo.Named(results, names)
}

// end keeps the logs of the board and ends it.
func (s suiteOn) end() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.Context()), time.Minute)
	defer cancel()
	for _, file := range []string{"tinylet.log", "containerd.log"} {
		text, err := s.vm.Get(ctx, "/var/log/"+file)
		if err == nil {
			err = os.WriteFile(filepath.Join(s.ArtifactDir(), file), text, 0o644)
		}
		if err != nil {
			s.Errorf("keep %s: %v", file, err)
		}
	}
	if err := s.vm.Close(); err != nil {
		s.Error(err)
	}
}

// until waits for what to be without complaint.
func (s suiteOn) until(what string, missing func() string) {
	s.Helper()
	began := time.Now()
	for {
		m := missing()
		if m == "" {
			s.Logf("%s: after %.1f s", what, time.Since(began).Seconds())
			return
		}
		if time.Since(began) > patience {
			s.Fatalf("not within %v: %s: %s", patience, what, m)
		}
		time.Sleep(time.Second)
	}
}

// sh runs a script on the board.
func (s suiteOn) sh(script string) string {
	s.Helper()
	out, err := s.vm.Shell(s.Context(), script)
	if err != nil {
		s.Fatal(err)
	}
	return out
}

// built is the path of a program that make test-conformance builds.
func built(t *testing.T, program string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", "..", ".cache", "conformance", program))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("%v; make conformance-programs builds it", err)
	}
	return path
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// said is what a command prints.
func said(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("run %v: %v", cmd.Args, err)
	}
	return string(out)
}

func tail(text []byte) []byte { return text[max(0, len(text)-4000):] }

// lines is a test's log as a writer of lines.
type lines struct{ t *testing.T }

func (l lines) Write(p []byte) (int, error) {
	l.t.Log(strings.TrimSuffix(string(p), "\n"))
	return len(p), nil
}
