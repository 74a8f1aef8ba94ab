package cli

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/agent/server/local"
)

// sampleUsage has a pod with control characters in its status, and one without usage.
func sampleUsage() *local.Usage {
	return &local.Usage{
		Time: now,
		Node: local.NodeUsage{
			Name: "board", CPUNanoCores: new(uint64(431_000_000)), Cores: 4,
			MemoryBytes: 180 << 20, MemoryAvailableBytes: 280 << 20, MemoryCapacityBytes: 460 << 20,
			Pressure: &local.Pressure{CPU: 1.26, Memory: 0, IO: 12.5},
		},
		Classes: []local.CgroupUsage{
			{Name: "Guaranteed", CPUNanoCores: new(uint64(0)), MemoryBytes: 0},
			{Name: "Burstable", CPUNanoCores: new(uint64(300_000_001)), MemoryBytes: 90 << 20},
			{Name: "BestEffort", MemoryBytes: 12 << 20},
		},
		Agent: &local.CgroupUsage{Name: "tinylet", CPUNanoCores: new(uint64(2_100_000)), MemoryBytes: 21 << 20},
		Pods: []local.PodUsage{
			{Namespace: "default", Name: "new", Status: "ContainerCreating", Containers: []local.ContainerUsage{{Name: "main", State: stateWaiting}}},
			{Namespace: "default", Name: "big", Status: "Running", CPUNanoCores: new(uint64(1_000_000)), MemoryBytes: 80 << 20, Containers: []local.ContainerUsage{
				{Name: "small", State: stateRunning, MemoryBytes: 1 << 20, CPUNanoCores: new(uint64(0))},
				{Name: "large", State: stateRunning, MemoryBytes: 79 << 20, CPUNanoCores: new(uint64(1_000_000)), Restarts: 2},
			}, Restarts: 2},
			{Namespace: "kube-system", Name: "busy", Status: "Evil\x1b[2J\nStatus", CPUNanoCores: new(uint64(299_000_000)), MemoryBytes: 10 << 20, Containers: []local.ContainerUsage{}},
		},
	}
}

func TestUnknownSortsLast(t *testing.T) {
	for order, want := range map[string]string{byCPU: "busy big new", byMemory: "big busy new", byName: "big new busy"} {
		u := sampleUsage()
		sortUsage(u, order)
		var names []string
		for _, p := range u.Pods {
			names = append(names, p.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("by %s: %s, want %s", order, got, want)
		}
	}
}

func TestMillicoresAndPercent(t *testing.T) {
	for nano, want := range map[uint64]string{0: "0m", 1: "1m", 1e6: "1m", 1e6 + 1: "2m", 4e9: "4000m", 1<<64 - 1: "18446744073710m"} {
		if got := millicores(&nano); got != want {
			t.Errorf("%d billionths are %s, want %s", nano, got, want)
		}
	}
	if got := millicores(nil); got != "-" {
		t.Errorf("unknown is %s", got)
	}
	for _, tt := range []struct {
		part, whole int64
		want        string
	}{{1, 3, "33%"}, {0, 3, "0%"}, {-1, 3, "-"}, {1, 0, "-"}, {5, 2, "250%"}} {
		if got := percent(tt.part, tt.whole); got != tt.want {
			t.Errorf("percent(%d, %d) = %s, want %s", tt.part, tt.whole, got, tt.want)
		}
	}
}

// TestTopRequestsTwice has an agent without CPU usage in its first response.
func TestTopRequestsTwice(t *testing.T) {
	var asked atomic.Int32
	n := newNode(t, samplePods(), nil, func(c *local.Config) {
		c.Usage = func(context.Context) (*local.Usage, error) {
			u := sampleUsage()
			if asked.Add(1) == 1 {
				u.Node.CPUNanoCores = nil
			}
			return u, nil
		}
	})
	out, _, err := n.run(t, "top", "--once")
	if err != nil || !strings.Contains(out, "431m") || asked.Load() != 2 {
		t.Errorf("asked %d times, %v:\n%s", asked.Load(), err, out)
	}
}

func TestFrame(t *testing.T) {
	for _, tt := range []struct {
		name, text    string
		rows, columns int
		want          []string
	}{
		{"fits", "a\nb\n", 2, 10, []string{"a", "b"}},
		{"too wide", "ääääb\n", 2, 4, []string{"ääää"}},
		{"too long", "a\nb\nc\nd\n", 3, 40, []string{"a", "b", "... and 2 more lines"}},
		{"one line", "a\nb\n", 1, 40, []string{"... and 2 more lines"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want := home + strings.Join(tt.want, clearLine+"\r\n") + clearLine + clearBelow
			if diff := cmp.Diff(want, frame(tt.text, tt.rows, tt.columns)); diff != "" {
				t.Errorf("frame (-want +got):\n%s", diff)
			}
		})
	}
}

// atTerminal runs top on a terminal while do runs. do can wait for output with until.
// It returns all output and the error.
func atTerminal(t *testing.T, config func(*local.Config), do func(person *os.File, until func(text string), stop context.CancelFunc)) (string, error) {
	t.Helper()
	n := newNode(t, samplePods(), nil, config)
	person, program := pty(t)
	resize(t, program, 60, 9)
	before, err := unix.IoctlGetTermios(int(program.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	root := &cobra.Command{Use: "tinylet", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(n.system.commands()...)
	root.SetArgs([]string{"top", "--socket", n.socket, "--interval", "1s"})
	root.SetIn(program)
	root.SetOut(program)
	done := make(chan error, 1)
	go func() { done <- root.ExecuteContext(ctx) }()

	var shown bytes.Buffer
	read := 0
	until := func(text string) {
		t.Helper()
		if err := person.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 4096)
		for !strings.Contains(shown.String()[read:], text) {
			n, err := person.Read(buf)
			if err != nil {
				t.Fatalf("%q did not come: %v; shown was %q", text, err, shown.String())
			}
			shown.Write(buf[:n])
		}
		read += strings.Index(shown.String()[read:], text) + len(text)
	}
	do(person, until, stop)
	until(leaveScreen)
	err = <-done
	after, terr := unix.IoctlGetTermios(int(program.Fd()), unix.TCGETS)
	if terr != nil {
		t.Fatal(terr)
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("the terminal is not as it was (-before +after):\n%s", diff)
	}
	return shown.String(), err
}

func measured(c *local.Config) {
	c.Usage = func(context.Context) (*local.Usage, error) { return sampleUsage(), nil }
}

func TestTopOnATerminal(t *testing.T) {
	shown, err := atTerminal(t, measured, func(person *os.File, until func(string), _ context.CancelFunc) {
		until("... and ")
		until(home) // redrawn after the interval
		for _, key := range []string{"n", "m", "c", "x"} {
			if _, err := person.WriteString(key); err != nil {
				t.Fatal(err)
			}
			until(home)
		}
		if _, err := person.WriteString("q"); err != nil {
			t.Fatal(err)
		}
	})
	if err != nil {
		t.Errorf("top = %v", err)
	}
	if !strings.HasPrefix(shown, enterScreen) {
		t.Errorf("it began with %.40q", shown)
	}
	for _, line := range strings.Split(shown, "\r\n") {
		text := strings.NewReplacer(enterScreen, "", leaveScreen, "", home, "", clearLine, "", clearBelow, "").Replace(line)
		if len(text) > 2*60 || strings.Contains(text, "\x1b") { // two frames may meet in a line
			t.Errorf("a line is too long, or controls the terminal: %q", text)
		}
	}
}

func TestTopIsInterrupted(t *testing.T) {
	_, err := atTerminal(t, measured, func(_ *os.File, until func(string), stop context.CancelFunc) {
		until(clearBelow)
		stop()
	})
	var e *ExitError
	if !errors.As(err, &e) || e.Code != codeInterrupted {
		t.Errorf("top = %v", err)
	}
}

// TestTopFailsOnATerminal has an agent whose second response is an error.
func TestTopFailsOnATerminal(t *testing.T) {
	var asked atomic.Int32
	_, err := atTerminal(t, func(c *local.Config) {
		c.Usage = func(context.Context) (*local.Usage, error) {
			if asked.Add(1) > 1 {
				return nil, errors.New("cgroups are gone")
			}
			return sampleUsage(), nil
		}
	}, func(_ *os.File, until func(string), _ context.CancelFunc) { until(clearBelow) })
	if err == nil || !strings.Contains(err.Error(), "cgroups are gone") {
		t.Errorf("top = %v", err)
	}
}
