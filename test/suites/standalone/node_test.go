//go:build board

package standalone

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/cmd/tinylet/cli"
	"github.com/tinylet/tinylet/test/harness/board"
)

const (
	manifestDir = "/etc/kubernetes/manifests"
	agentLog    = "/var/log/tinylet.log"
)

// arch is the board that this run tests.
func arch() board.Arch {
	if a := os.Getenv("BOARD_ARCH"); a != "" {
		return board.Arch(a)
	}
	return board.ARM64
}

// slow stretches limits: the armv7 board is emulated at half the speed.
func slow(d time.Duration) time.Duration {
	if arch() == board.ARMv7 {
		return 2 * d
	}
	return d
}

// node is a running board as the tests use it.
type node struct {
	*testing.T
	ctx context.Context
	vm  *board.VM
	// log prints so many of the agent's last lines.
	log string
	// socket leads to the agent's.
	socket string
}

// with is the node for a subtest.
func (n node) with(t *testing.T) node { n.T = t; return n }

// images are those that tests have asked for, by whether systemd is in them.
var images = map[bool]*board.Image{}

func prepare(t *testing.T) *board.Image { t.Helper(); return prepareWith(t, false) }

func prepareWith(t *testing.T, systemd bool) *board.Image {
	t.Helper()
	if images[systemd] == nil {
		made, err := board.Prepare(t.Context(), board.Options{Arch: arch(), Systemd: systemd, Progress: os.Stderr})
		if err != nil {
			t.Fatal(err)
		}
		images[systemd] = made
	}
	return images[systemd]
}

// boot starts a board with the agent in it and waits until its services run.
func boot(t *testing.T, o board.VMOptions) node {
	t.Helper()
	return bootDisk(t, withAgent(t, o))
}

// withAgent adds the agent to what is put into the board.
func withAgent(t *testing.T, o board.VMOptions) board.VMOptions {
	t.Helper()
	binary, err := filepath.Abs(filepath.Join("..", "..", "..", "bin", "tinylet-"+string(arch())))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(binary); err != nil {
		t.Fatalf("%v: run `make build-%s` first", err, arch())
	}
	if o.MemoryMB == 0 {
		o.MemoryMB = 512
	}
	o.Files = append(o.Files, board.TinyletFiles(binary)...)
	return o
}

// bootDisk is boot without putting anything into the board.
func bootDisk(t *testing.T, o board.VMOptions) node {
	t.Helper()
	return bootImage(t, prepare(t), o, "tail -n %d "+agentLog)
}

func bootImage(t *testing.T, image *board.Image, o board.VMOptions, log string) node {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Minute)
	t.Cleanup(cancel)
	vm, err := board.Boot(ctx, image, o)
	if err != nil {
		t.Fatal(err)
	}
	n := node{T: t, ctx: ctx, vm: vm, log: log}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the agent's log:\n%s", n.tail(150))
		}
		if err := vm.Close(); err != nil {
			t.Logf("close board: %v", err)
		}
	})
	if err := vm.WaitBooted(ctx); err != nil {
		t.Fatal(err)
	}
	n.socket = relay(ctx, t, vm)
	return n
}

// relay returns a socket of this machine that leads to the agent's of the board.
func relay(ctx context.Context, t *testing.T, vm *board.VM) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "e2e")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.Close()
		os.RemoveAll(dir)
	})
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _ = vm.Relay(ctx, config.DefaultSocketPath, conn) }() // whose client sees its end
		}
	}()
	return l.Addr().String()
}

// ask runs a command of tinylet on this machine against the board's agent, and
// reads the document that it prints. In the board the start of the program alone
// is a second of its processor.
func (n node) ask(document any, args ...string) error {
	for _, cmd := range cli.Commands() {
		if cmd.Name() != args[0] {
			continue
		}
		var out bytes.Buffer
		cmd.SetArgs(append(args[1:], "-o", "json", "--socket", n.socket))
		cmd.SetOut(&out)
		cmd.SetErr(io.Discard)
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		if err := cmd.ExecuteContext(n.ctx); err != nil {
			return fmt.Errorf("tinylet %s: %w", strings.Join(args, " "), err)
		}
		return json.Unmarshal(out.Bytes(), document)
	}
	return fmt.Errorf("no command %q", args[0])
}

func (n node) tail(lines int) string {
	out, err := n.vm.Shell(n.ctx, fmt.Sprintf(n.log, lines))
	if err != nil {
		return err.Error()
	}
	return out
}

// sh runs a script that must succeed.
func (n node) sh(script string, args ...any) string {
	n.Helper()
	out, err := n.vm.Shell(n.ctx, fmt.Sprintf(script, args...))
	if err != nil {
		n.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// put writes a manifest as an editor does that replaces the file.
func (n node) put(name, text string) {
	n.Helper()
	if err := n.vm.Put(n.ctx, path.Join(manifestDir, name), strings.NewReader(text), 0o644); err != nil {
		n.Fatal(err)
	}
}

// pods is what `tinylet ps -o json` prints, by name without the node's.
func (n node) pods() (map[string]cli.PodDocument, error) {
	var doc cli.PodsDocument
	if err := n.ask(&doc, "ps"); err != nil {
		return nil, err
	}
	pods := make(map[string]cli.PodDocument, len(doc.Pods))
	for _, p := range doc.Pods {
		name, _, _ := strings.Cut(p.Name, "-board")
		pods[name] = p
	}
	return pods, nil
}

// eventually asks until cond answers "", for at most limit.
func (n node) eventually(limit time.Duration, what string, cond func(pods map[string]cli.PodDocument) string) map[string]cli.PodDocument {
	n.Helper()
	limit = slow(limit)
	start := time.Now()
	for {
		pods, err := n.pods()
		wrong := ""
		if err != nil {
			wrong = err.Error()
		} else {
			wrong = cond(pods)
		}
		if wrong == "" {
			n.Logf("%s: after %.1f s", what, time.Since(start).Seconds())
			return pods
		}
		if time.Since(start) > limit {
			table, _ := n.vm.Run(n.ctx, "tinylet", "ps")
			n.Fatalf("%s: not within %s: %s\n%s", what, limit, wrong, table.Stdout)
		}
		n.breathe(start)
	}
}

// statuses is a condition on the word that ps shows for each pod.
func statuses(want map[string]string) func(map[string]cli.PodDocument) string {
	return func(pods map[string]cli.PodDocument) string {
		var wrong []string
		for name, status := range want {
			if got := pods[name].Status; got != status {
				wrong = append(wrong, fmt.Sprintf("%s is %q, not %q", name, got, status))
			}
		}
		if len(pods) != len(want) {
			wrong = append(wrong, fmt.Sprintf("%d pods, not %d", len(pods), len(want)))
		}
		return strings.Join(wrong, ", ")
	}
}

// clear removes all manifests and waits until nothing of them is left.
func (n node) clear() {
	n.Helper()
	n.sh("rm -rf %s/*", manifestDir)
	n.eventually(patience, "all pods gone", func(pods map[string]cli.PodDocument) string {
		if len(pods) > 0 {
			return fmt.Sprintf("%d pods are left", len(pods))
		}
		return ""
	})
	if left := n.sh("ctr -n k8s.io c ls -q; ls /var/lib/kubelet/pods /var/log/pods /var/log/containers"); strings.Contains(left, "_") || len(strings.Fields(left)) > 3 {
		n.Errorf("removed pods left behind: %s\n%s", left, n.sh("tail -n 200 /var/log/containerd.log"))
	}
}

// tasks are the processes that containerd runs: container ID to PID.
func (n node) tasks() map[string]string {
	n.Helper()
	out := map[string]string{}
	for line := range strings.Lines(n.sh("ctr -n k8s.io t ls")) {
		if f := strings.Fields(line); len(f) == 3 && f[2] == "RUNNING" {
			out[f[0]] = f[1]
		}
	}
	return out
}

// sleeper is a manifest of a pod whose containers run until they are stopped.
func sleeper(name string, containers int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  terminationGracePeriodSeconds: 1\n  containers:\n", name)
	for i := range containers {
		fmt.Fprintf(&b, "  - {name: c%d, image: %q, command: [sleep, \"1000000\"]}\n", i, board.BusyboxImage)
	}
	return b.String()
}
