//go:build cluster

package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/test/harness/board"
	"github.com/tinylet/tinylet/test/suites/cluster/census"
	"github.com/tinylet/tinylet/test/suites/cluster/ledger"
	"github.com/tinylet/tinylet/test/suites/cluster/transcript"
)

// TestPowerCuts cuts the power of a joined board at random moments while its
// pods come, change and go, and boots it again, at times without its network:
// no pod is lost, none runs twice, and nothing panics. A crash of the kernel by
// a fault of its own is one more way to lose the power, if it stays rare. POWER_CYCLES is how
// often, POWER_SEED repeats the decisions of another run, if not its timing.
func TestPowerCuts(t *testing.T) {
	cycles := board.Number(t, "POWER_CYCLES", 10)
	s := newSoak(t, uint64(board.Number(t, "POWER_SEED", time.Now().UnixNano()%1_000_000)))
	began := time.Now()
	for s.cycle = 1; s.cycle <= int(cycles); s.cycle++ {
		s.turn(int(cycles))
	}
	s.boot(false)
	s.restored()
	s.settled()
	s.vm.Kill()
	s.close()
	t.Logf("%d power cuts in %.0f s; the journal had a torn tail %d times, the kernel crashed %d times", cycles, time.Since(began).Seconds(), s.torn, s.crashes)
	for _, e := range s.c.Refused(t) {
		t.Errorf("the cluster refused %+v", e)
	}
}

// soak is a lab whose board loses its power again and again.
type soak struct {
	lab
	*rand.Rand
	seed    uint64
	ledger  *ledger.Ledger
	console *transcript.Transcript // of this boot
	cycle   int
	offline bool
	number  int           // of the newest pod
	jobs    []string      // that were not deleted, the oldest first
	usual   time.Duration // from power on until the pods run
	powered time.Time
	torn    int
	crashes int      // of the kernel
	said    []string // of this cycle
	counted string   // the last census, or why there was none
}

// newSoak boots a board for the first time and has it join.
func newSoak(t *testing.T, seed uint64) *soak {
	t.Helper()
	s := &soak{lab: prepareLab(t), Rand: rand.New(rand.NewPCG(seed, 0)), seed: seed, ledger: ledger.New(), usual: 30 * time.Second}
	t.Logf("seed %d", seed)
	t.Cleanup(s.end)
	program := filepath.Join(t.TempDir(), "census")
	env, err := arch().GoEnv()
	if err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-tags", "grpcnotrace", "-ldflags", "-s -w", "-o", program, "./census/cmd/census")
	build.Env = append(os.Environ(), env...)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build census: %v\n%s", err, out)
	}
	s.boot(false, append(board.TinyletFiles(binary()), s.joinFiles(s.bootstrap())...),
		[]board.File{
			{Path: "/usr/bin/census", Mode: 0o755, Source: program},
			// All that the agent says is known up to the power cut.
			{Path: "/var/log/tinylet.log", Link: "/dev/console"},
		})
	s.until("the node is Ready", s.nodeReady)
	s.populate()
	s.until("the first pods run", func() string {
		s.observe()
		return strings.Join(s.ledger.Unsettled(s.census()), "; ")
	})
	// What the harness has put there is on the disk; the rest is the agent's.
	s.sh("sync")
	s.cut("after the first boot")
	return s
}

// turn is one cycle: boot, check, change things, cut the power.
func (s *soak) turn(cycles int) {
	began := time.Now()
	s.said = nil
	defer func() {
		switch r := recover().(type) {
		case nil: // also where the test ends
			s.Logf("cycle %d of %d, %.1f s, seed %d: %s", s.cycle, cycles, time.Since(began).Seconds(), s.seed, strings.Join(s.said, "; "))
		case crash:
			s.crashed(string(r), cycles)
		default:
			panic(r)
		}
	}()
	offline := s.IntN(3) == 0
	if s.IntN(2) == 0 {
		s.cutEarly(offline)
	} else {
		s.boot(offline)
		s.restored()
		if s.offline && s.IntN(2) == 0 {
			s.heal()
		}
		s.live()
	}
}

// crash is where the board's kernel crashed. It ends a turn as a panic.
type crash string

// crashed takes a crash of the kernel for a power cut. Kernels have faults that
// show once in many hours on an emulated board, whose CPUs stand still at any
// point while the machine does other things; more than that would be of what is
// tested.
func (s *soak) crashed(where string, cycles int) {
	s.Helper()
	s.crashes++
	s.cut("by the kernel, which crashed in %s", where)
	s.Logf("cycle %d of %d, seed %d: %s", s.cycle, cycles, s.seed, strings.Join(s.said, "; "))
	if most := max(1, cycles/50); s.crashes > most {
		s.Fatalf("the kernel has crashed %d times in %d cycles: %s", s.crashes, s.cycle, where)
	}
}

// say notes what is done in this cycle.
func (s *soak) say(format string, args ...any) { s.said = append(s.said, fmt.Sprintf(format, args...)) }

// live is what happens on a board that has come back, until its power goes.
func (s *soak) live() {
	if !s.offline && s.IntN(3) == 0 {
		s.settled()
	}
	switch what := s.IntN(10); {
	case what < 2:
		wait := s.upTo(3 * time.Second)
		time.Sleep(wait)
		s.cut("when quiet for %.1f s", wait.Seconds())
	case what < 5 && !s.offline:
		event := s.awaitEvent()
		// Most that goes wrong does so at once.
		wait := s.upTo(s.upTo(2 * time.Second))
		time.Sleep(wait)
		s.cut("%.2f s after %s", wait.Seconds(), event)
	default:
		for range 1 + s.IntN(4) {
			s.say("%s", s.change())
			time.Sleep(s.upTo(1500 * time.Millisecond))
		}
		wait := s.upTo(4 * time.Second)
		time.Sleep(wait)
		s.cut("%.1f s after that", wait.Seconds())
	}
}

func (s *soak) upTo(d time.Duration) time.Duration { return time.Duration(s.Int64N(int64(d) + 1)) }

// power starts the board. The error is that of the start or ctx's.
func (s *soak) power(ctx context.Context, offline bool, files []board.File) (*board.VM, error) {
	network := s.c.BoardNet(s.T, name)
	if offline != s.offline {
		if offline {
			s.c.Partition(s.T, name)
		} else {
			s.c.Heal(s.T, name)
		}
		s.offline = offline
	}
	s.console, s.powered = &transcript.Transcript{}, time.Now()
	// The disk's cache is QEMU's mode unsafe. It leaves out the host's own
	// flush and nothing else: what the board has synced is with the host's
	// kernel, which outlives QEMU, while writes that it has not synced may be
	// lost with what QEMU holds of the disk's layout, as in the cache of a card.
	return board.Boot(ctx, s.im, board.VMOptions{
		MemoryMB: 512, Disk: s.disk, Files: files, Network: network, Console: s.console,
	})
}

// boot starts the board, until its services are started.
func (s *soak) boot(offline bool, files ...[]board.File) {
	s.Helper()
	var all []board.File
	for _, f := range files {
		all = append(all, f...)
	}
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	var err error
	if s.vm, err = s.power(ctx, offline, all); err != nil {
		s.failf("boot: %v", err)
	}
	if err := s.vm.WaitBooted(ctx); err != nil {
		s.failf("boot: %v", err)
	}
	s.say("%s in %.1f s", map[bool]string{false: "booted", true: "booted without network"}[offline], time.Since(s.powered).Seconds())
}

// cutEarly cuts the power between its coming and the moment at which the pods
// usually run.
func (s *soak) cutEarly(offline bool) {
	after := 300*time.Millisecond + s.upTo(s.usual)
	ctx, cancel := context.WithTimeout(s.Context(), after)
	defer cancel()
	vm, err := s.power(ctx, offline, nil)
	if err != nil && ctx.Err() == nil {
		s.failf("boot: %v", err)
	}
	if err == nil {
		s.vm = vm
		<-ctx.Done()
		if where := s.console.Crash(); where != "" {
			panic(crash(where))
		}
	}
	s.cut("%.1f s after power on%s", after.Seconds(), map[bool]string{true: " without network"}[offline])
}

// cut cuts the power, and checks what was said until then.
func (s *soak) cut(format string, args ...any) {
	s.Helper()
	if s.vm != nil {
		s.vm.Kill()
	}
	s.say("cut "+format, args...)
	s.observe() // what the board has reported before
	s.ledger.Cut()
	s.close()
}

// close ends a boot whose power is cut.
func (s *soak) close() {
	s.Helper()
	if s.vm != nil {
		if err := s.vm.Close(); err != nil {
			s.Error(err)
		}
		s.vm = nil
	}
	s.keep()
	s.torn += s.console.Torn()
	if faults := s.console.Faults(); len(faults) > 0 {
		s.failf("the board said:\n%s", strings.Join(faults, "\n"))
	}
}

// heal gives the board its network back.
func (s *soak) heal() {
	s.c.Heal(s.T, name)
	s.offline = false
	s.say("network back")
}

// observe passes all pods of the API server to the ledger.
func (s *soak) observe() {
	s.Helper()
	var list corev1.PodList
	s.rest(http.MethodGet, podsPath, nil, &list)
	if faults := s.ledger.Observe(list.Items); len(faults) > 0 {
		s.failf("the API server has:\n%s", strings.Join(faults, "\n"))
	}
}

// census asks the board what it holds; nil while it cannot tell.
func (s *soak) census() *census.Census {
	s.Helper()
	out, err := s.vm.Run(s.Context(), "census")
	if err != nil {
		s.failf("census: %v", err)
	}
	if out.Exit != 0 {
		s.counted = string(bytes.TrimSpace(out.Stderr))
		return &census.Census{}
	}
	s.counted = string(out.Stdout)
	c := &census.Census{}
	if err := json.Unmarshal(out.Stdout, c); err != nil {
		s.failf("census: %v\n%s", err, out.Stdout)
	}
	if faults := s.ledger.Faults(c); len(faults) > 0 {
		s.failf("the board has:\n%s", strings.Join(faults, "\n"))
	}
	return c
}

// restored waits until all pods run that have to, and the agent says so.
func (s *soak) restored() {
	s.Helper()
	due := s.ledger.Due()
	for start := time.Now(); !s.started(due) && time.Since(start) < patience; {
		time.Sleep(100 * time.Millisecond)
	}
	s.await("pods back", func() string {
		if missing := s.ledger.Missing(s.census()); len(missing) > 0 {
			return strings.Join(missing, "; ")
		}
		shown := s.onBoard("")
		for _, name := range due {
			phase, counts, _ := strings.Cut(shown[name], " ")
			if is, of, _ := strings.Cut(counts, "/"); phase != "Running" || is != of {
				return fmt.Sprintf("the agent has %s as %q", name, shown[name])
			}
		}
		return ""
	})
	took := time.Since(s.powered)
	s.say("%d pods back after %.1f s", len(due), took.Seconds())
	s.usual = (s.usual + took) / 2
}

// started says whether the agent says on the console that it has started
// containers of all these pods. To ask costs the board nothing, while a census
// takes a second of its time.
func (s *soak) started(pods []string) bool {
	said := make(map[string]bool)
	for line := range strings.Lines(s.console.String()) {
		if _, rest, ok := strings.Cut(line, " pod=default/"); ok && strings.Contains(rest, " reason=Started ") {
			name, _, _ := strings.Cut(rest, " ")
			said[name] = true
		}
	}
	for _, name := range pods {
		if !said[name] {
			return false
		}
	}
	return true
}

// settled waits until board and API server have come to rest and agree.
func (s *soak) settled() {
	s.Helper()
	start := time.Now()
	s.await("settled", func() string {
		s.observe()
		return strings.Join(s.ledger.Unsettled(s.census()), "; ")
	})
	s.say("settled in %.1f s", time.Since(start).Seconds())
}

// await is until without a word where all is well.
func (s *soak) await(what string, missing func() string) {
	s.Helper()
	for start := time.Now(); ; time.Sleep(time.Second) {
		m := missing()
		if m == "" {
			return
		}
		if time.Since(start) > 2*patience {
			s.failf("not within %v: %s: %s", 2*patience, what, m)
		}
	}
}

// failf ends the test with all that helps to see why.
func (s *soak) failf(format string, args ...any) {
	s.Helper()
	if where := s.console.Crash(); where != "" && s.vm != nil {
		panic(crash(where))
	}
	s.Fatalf("seed %d, cycle %d (%s): %s", s.seed, s.cycle, strings.Join(s.said, "; "), fmt.Sprintf(format, args...))
}

// end keeps what the last boot said, shows it after a failure, and ends the
// board.
func (s *soak) end() {
	if s.console == nil {
		return
	}
	if s.Failed() && s.vm != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.Context()), 20*time.Second)
		out, err := s.vm.Run(ctx, "sh", "-c", "tinylet ps; tinylet events; dmesg | tail -n 20; tail -n 30 /var/log/containerd.log")
		s.Logf("the board: %v\n%s%s", err, out.Stdout, out.Stderr)
		cancel()
	}
	if s.Failed() {
		s.Logf("last census: %s", s.counted)
		s.Logf("end of what the board has said:\n%s", s.console.Tail(16000))
	}
	if s.vm != nil {
		s.keep()
		if err := s.vm.Close(); err != nil {
			s.Error(err)
		}
	}
}

// keep keeps what the board has said in this boot as an artifact.
func (s *soak) keep() {
	path := filepath.Join(s.ArtifactDir(), fmt.Sprintf("console-%03d.log", s.cycle))
	if err := os.WriteFile(path, []byte(s.console.String()), 0o644); err != nil {
		s.Error(err)
	}
}
