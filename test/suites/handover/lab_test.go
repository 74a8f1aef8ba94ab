//go:build adopt

package handover

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tinylet/tinylet/net/cni"
	"github.com/tinylet/tinylet/net/ipam"
	"github.com/tinylet/tinylet/test/harness/board"
	"github.com/tinylet/tinylet/test/suites/handover/inventory"
)

//go:embed testdata
var testdata embed.FS

const (
	manifestDir = "/etc/kubernetes/manifests"
	// stepTime bounds the wait for one thing on an emulated board.
	stepTime = 10 * time.Minute
)

// lab is a board with both agents on it.
type lab struct {
	t           *testing.T
	vm          *board.VM
	start       time.Time
	kubeletLogs []*logBuffer // of each stock kubelet in turn
}

// labOptions say what the board has; what is zero is as usual.
type labOptions struct {
	memoryMB, cpus int
	cmdline        string // more of the kernel's command line
	memoryQoS      bool   // as tinylet has it by default, and a kubelet behind a gate
}

// boardConfig is tinylet's configuration on a board as it comes.
var boardConfig = filepath.Join("..", "..", "..", "buildroot", "board", "common", "rootfs-overlay", "etc", "tinylet", "config.yaml")

// configFiles are those of both agents.
func (o *labOptions) configFiles(t *testing.T) []board.File {
	t.Helper()
	kubelet, err := testdata.ReadFile("testdata/stock-kubelet.yaml")
	if err != nil {
		t.Fatal(err)
	}
	tinylet, err := os.ReadFile(boardConfig)
	if err != nil {
		t.Fatal(err)
	}
	if o.memoryQoS {
		kubelet = append(kubelet, "featureGates: {MemoryQoS: true}\nmemoryReservationPolicy: TieredReservation\n"...)
	} else {
		tinylet = append(tinylet, "memoryQoS: false\n"...) // its own document is the last
	}
	return []board.File{
		{Path: "/etc/stock-kubelet.yaml", Mode: 0o644, Data: kubelet},
		{Path: "/etc/tinylet/config.yaml", Mode: 0o644, Data: tinylet},
	}
}

// networkFiles have the runtime set up the pods' network by tinylet's plugin,
// whichever agent is there: it needs neither.
func networkFiles(t *testing.T) []board.File {
	t.Helper()
	c := cni.Default()
	c.Masquerade, c.Ranges = true, []ipam.Range{{Prefix: netip.MustParsePrefix("10.88.0.0/24")}}
	conflist, err := cni.Conflist(c, "tinylet")
	if err != nil {
		t.Fatal(err)
	}
	return []board.File{
		{Path: "/etc/cni/net.d/10-tinylet.conflist", Mode: 0o644, Data: conflist},
		{Path: "/opt/cni/bin/tinylet-cni", Link: "/usr/bin/tinylet"},
	}
}

// newLab boots the board. Both agents' programs have to be built before.
func newLab(t *testing.T) *lab { t.Helper(); return newLabWith(t, labOptions{}) }

func newLabWith(t *testing.T, o labOptions) *lab {
	t.Helper()
	l := &lab{t: t, start: time.Now()}
	tinylet := filepath.Join("..", "..", "..", "bin", "tinylet-arm64")
	kubelet := filepath.Join("..", "..", "..", ".cache", "kubelet", "kubelet-arm64")
	for _, program := range []string{tinylet, kubelet} {
		if _, err := os.Stat(program); err != nil {
			t.Fatalf("%v; make test-adopt builds it", err)
		}
	}
	im, err := board.Prepare(l.t.Context(), board.Options{Arch: board.ARM64, Progress: lines{t}})
	if err != nil {
		t.Fatal(err)
	}
	files := slices.Concat(board.TinyletFiles(tinylet), o.configFiles(t), networkFiles(t))
	l.vm, err = board.Boot(l.t.Context(), im, board.VMOptions{MemoryMB: max(o.memoryMB, 1024), CPUs: o.cpus, ExtraCmdline: o.cmdline, Files: append(files,
		board.File{Path: "/usr/bin/stock-kubelet", Mode: 0o755, Source: kubelet},
		board.File{Path: "/usr/bin/crilist", Mode: 0o755, Source: buildCRIList(t)},
	)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.close)
	if err := l.vm.WaitBooted(l.t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := l.vm.WaitContainerd(l.t.Context()); err != nil {
		t.Fatal(err)
	}
	// Both agents give pods the node's name servers; without any, tinylet gives
	// an option that changes nothing, and the kubelet nothing.
	l.shell("echo nameserver 192.0.2.53 > /etc/resolv.conf")
	// crun reads new limits from /dev/stdin, a link that udev, mdev or init
	// makes on most systems.
	l.shell("[ -e /dev/stdin ] || ln -s /proc/self/fd/0 /dev/stdin")
	l.say("the board is up: %s, %s", l.shell("tinylet --version"), l.shell("stock-kubelet --version"))
	return l
}

// close ends the board. What the agents said is kept in the artifacts
// (go test -artifacts) and, after a failure, shown in part.
func (l *lab) close() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.t.Context()), time.Minute)
	defer cancel()
	out, _ := l.vm.Run(ctx, "sh", "-c", "cat /var/log/messages /var/log/tinylet.log 2>/dev/null")
	logs := map[string][]byte{"tinylet.log": out.Stdout, "console.log": []byte(l.vm.ConsoleLog())}
	for i, log := range l.kubeletLogs {
		logs[fmt.Sprintf("stock-kubelet-%d.log", i+1)] = log.bytes()
	}
	dir := l.t.ArtifactDir()
	for name, data := range logs {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			l.t.Error(err)
		}
		if l.t.Failed() {
			l.t.Logf("end of %s:\n%s", name, data[max(0, len(data)-6000):])
		}
	}
	if err := l.vm.Close(); err != nil {
		l.t.Error(err)
	}
}

// buildCRIList builds the board's inventory program and returns its path.
func buildCRIList(t *testing.T) string {
	t.Helper()
	env, err := board.ARM64.GoEnv()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "crilist")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, "./crilist")
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	return program
}

// step runs one part of the test and says how long it took. A failed step
// ends the test.
func (l *lab) step(name string, run func()) {
	l.t.Helper()
	began := time.Now()
	l.say("== %s", name)
	run()
	l.say("== %s: %.0f s", name, time.Since(began).Seconds())
	if l.t.Failed() {
		l.t.FailNow()
	}
}

func (l *lab) say(format string, args ...any) {
	l.t.Helper()
	l.t.Logf("[%4.0f s] %s", time.Since(l.start).Seconds(), fmt.Sprintf(format, args...))
}

// shell runs a script on the board that has to work.
func (l *lab) shell(script string) string {
	l.t.Helper()
	out, err := l.vm.Shell(l.t.Context(), script)
	if err != nil {
		l.t.Fatal(err)
	}
	return out
}

// inventory lists what the runtime holds.
func (l *lab) inventory() *inventory.Inventory {
	l.t.Helper()
	inv, err := l.list()
	if err != nil {
		l.t.Fatal(err)
	}
	return inv
}

// list is inventory while the runtime may be too busy to answer in a minute.
func (l *lab) list() (*inventory.Inventory, error) {
	out, err := l.vm.Must(l.t.Context(), "crilist")
	if err != nil {
		return nil, err
	}
	inv := &inventory.Inventory{}
	return inv, json.Unmarshal([]byte(out), inv)
}

// eventually asks until the answer is yes. check says what is missing.
func (l *lab) eventually(what string, check func() (missing string, ok bool)) {
	l.t.Helper()
	limit, said := time.Now().Add(stepTime), ""
	for {
		missing, ok := check()
		if ok {
			l.say("%s", what)
			return
		}
		if missing != said {
			said = missing
			l.say("  not yet: %.200s", missing)
		}
		if time.Now().After(limit) {
			l.t.Fatalf("not within %v: %s: %s", stepTime, what, missing)
		}
		time.Sleep(2 * time.Second)
	}
}

// putManifests gives the board all manifests.
func (l *lab) putManifests() {
	l.t.Helper()
	files, err := testdata.ReadDir("testdata/manifests")
	if err != nil {
		l.t.Fatal(err)
	}
	for _, file := range files {
		f, err := testdata.Open("testdata/manifests/" + file.Name())
		if err != nil {
			l.t.Fatal(err)
		}
		err = l.vm.Put(l.t.Context(), path.Join(manifestDir, file.Name()), f, 0o644)
		_ = f.Close()
		if err != nil {
			l.t.Fatal(err)
		}
	}
	l.say("%d manifests are there", len(files))
}

func (l *lab) removeManifests() {
	l.t.Helper()
	l.shell("rm " + manifestDir + "/*.yaml")
	l.say("the manifests are removed")
}

// lines sends a writer's text to the test's log.
type lines struct{ t *testing.T }

func (w lines) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimRight(string(p), "\r\n"))
	return len(p), nil
}

// logBuffer collects a program's log.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

var _ io.Writer = (*logBuffer)(nil)

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *logBuffer) bytes() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return bytes.Clone(b.b.Bytes())
}
