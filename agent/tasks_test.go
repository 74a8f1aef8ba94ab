package agent

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/container/containerd"
	"github.com/tinylet/tinylet/agent/container/fake"
	"github.com/tinylet/tinylet/agent/health"
	"github.com/tinylet/tinylet/cgroups/cgroupstest"
)

var update = flag.Bool("update", false, "write the golden files anew")

// everything is an agent with all that can be configured, but for the pods'
// network, which is the host's.
func everything(t *testing.T, joined bool) *agent {
	t.Helper()
	dir := t.TempDir()
	if t.Setenv("NOTIFY_SOCKET", ""); joined {
		t.Setenv("NOTIFY_SOCKET", dir+"/nobody")
	}
	l := newLab(t, dir)
	l.cfg.Kubelet.HealthzPort, l.cfg.Kubelet.CPUManagerPolicy = new(int32(0)), "static"
	l.cfg.Kubelet.Address, l.cfg.Kubelet.StaticPodURL = "127.0.0.1", "http://127.0.0.1:1/"
	l.cfg.Kubelet.ReservedSystemCPUs = "0"
	l.cfg.Tinylet.ImagesFolder, l.cfg.Tinylet.ObjectsFolder = dir+"/images", dir+"/objects"
	l.cfg.Tinylet.Network = config.Network{Mode: config.NetworkRouted, ConfigFolder: dir + "/net.d", Bridge: "cni0", Services: true}
	if joined {
		l.cfg.Kubeconfig, l.cfg.Paths.State, l.cfg.Paths.PKI = dir+"/kubeconfig", dir+"/state", dir+"/pki"
		l.cfg.Tinylet.Metered = true
	}
	h, tree := cgroupstest.New(t)
	h.Write("/", map[string]string{"cgroup.controllers": "cpu cpuset memory\n", "cpuset.cpus.effective": "0-3\n"})
	native, err := containerd.New("unix://" + dir + "/containerd.sock")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = native.Close() })
	a, err := assemble(environment{cfg: l.cfg, runtime: fake.New(fake.Config{}), native: native, tree: tree, hostNetwork: true, log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.poller.Close)
	if joined {
		t.Cleanup(func() { _ = a.cluster.journal.Close() })
	}
	return a
}

// TestTaskList holds what the agent runs against the lists in testdata, which
// -update writes anew.
func TestTaskList(t *testing.T) {
	for name, joined := range map[string]bool{"standalone": false, "joined": true} {
		t.Run(name, func(t *testing.T) {
			var names []string
			var lines []string
			for _, stage := range everything(t, joined).stages() {
				for _, task := range stage.Tasks {
					if task.Name == "" || task.Run == nil || slices.Contains(names, task.Name) {
						t.Errorf("task %q is unnamed, empty or twice there", task.Name)
					}
					names = append(names, task.Name)
					lines = append(lines, stage.Name+" "+task.Name)
				}
			}
			got, path := strings.Join(lines, "\n")+"\n", filepath.Join("testdata", "tasks-"+name+".txt")
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("the tasks are others than in %s:\n%s", path, diff)
			}
		})
	}
}

// TestTasksCanRunAgain runs each task twice: one that ends early is run again.
func TestTasksCanRunAgain(t *testing.T) {
	a := everything(t, true)
	a.networkTasks = nil // they are of this machine
	var all []health.Task
	for _, stage := range a.stages() {
		all = append(all, stage.Tasks...)
	}
	for _, task := range all {
		for range 2 {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- task.Run(ctx) }()
			for range 10 {
				select {
				case err := <-done:
					t.Fatalf("task %s ends early: %v", task.Name, err)
				default:
					time.Sleep(time.Millisecond)
				}
			}
			cancel()
			if err := <-done; err != nil && !errors.Is(err, ctx.Err()) {
				t.Errorf("task %s ends with %v", task.Name, err)
			}
			if task.Name == "cgroup-events" {
				break // it can, after a failure: the context's end closes it
			}
		}
	}
}

// TestHealthNamesTasks has a task that does not run: it is one of the checks
// of /healthz and of the status.
func TestHealthNamesTasks(t *testing.T) {
	a := everything(t, false)
	tell := func() (text string) {
		for _, check := range a.checks() {
			if check.Name == "tasks" {
				if err := check.Healthy(time.Now()); err != nil {
					return err.Error()
				}
				return "ok"
			}
		}
		return "no such check"
	}
	if got := tell(); got != "ok" {
		t.Errorf("at first: %s", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go a.supervisor.Run(ctx, &health.Task{Name: "cgroup-events", Run: func(context.Context) error { return errors.New("bad file descriptor") }})
	for waited := 0; tell() == "ok" && waited < 1000; waited++ {
		time.Sleep(time.Millisecond)
	}
	if got := tell(); got != "cgroup-events does not run (ended early once): bad file descriptor" {
		t.Errorf("while it does not run: %s", got)
	}
}
