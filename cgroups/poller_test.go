package cgroups

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The test binary is also what lives in the groups of tests.
const playEnv = "CGROUPS_TEST_PLAY"

func TestMain(m *testing.M) {
	switch play := os.Getenv(playEnv); play {
	case "":
		os.Exit(m.Run())
	case "wait":
		time.Sleep(time.Minute)
	default: // bytes to take, to give back and to take again
		n, err := strconv.Atoi(play)
		if err != nil {
			os.Exit(2)
		}
		held, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			os.Exit(3)
		}
		for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
			for i := 0; i < n; i += os.Getpagesize() {
				held[i]++
			}
			if err := unix.Madvise(held, unix.MADV_DONTNEED); err != nil {
				os.Exit(4)
			}
		}
	}
	os.Exit(0)
}

// group makes a group in this machine's hierarchy and returns its tree and its
// path; it goes with the test, and what lives in it.
func group(t *testing.T, r Resources, controllers ...string) (*Tree, string) {
	t.Helper()
	tree, err := Open(mounted(t))
	if err != nil {
		t.Fatal(err)
	}
	if missing, err := tree.Missing(controllers...); err != nil || len(missing) > 0 {
		t.Skipf("cgroup v2 has no %v here (%v)", missing, err)
	}
	path := fmt.Sprintf("tinylet-test-%d-%s", os.Getpid(), filepath.Base(t.Name()))
	if err := tree.Ensure(path, r); errors.Is(err, os.ErrPermission) {
		t.Skipf("this needs the right to make a cgroup: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tree.Kill(path); err != nil {
			t.Log(err)
		}
		until(t, "the group is gone", func() bool { return tree.Delete(path) == nil })
	})
	return tree, path
}

// play starts a process in the group.
func play(t *testing.T, tree *Tree, path, what string) *exec.Cmd {
	t.Helper()
	dir, err := os.Open(filepath.Join(tree.root, path))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), playEnv+"="+what, "GOGC=off")
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd()), Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// polling is a Poller that runs until the test ends.
func polling(t *testing.T, tree *Tree) *Poller {
	t.Helper()
	p, err := tree.NewPoller()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return p
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not after 20 s: %s", what)
		}
	}
}

// next is the next reported value.
func next[T any](t *testing.T, reported <-chan T) T {
	t.Helper()
	select {
	case v := <-reported:
		return v
	case <-time.After(20 * time.Second):
		t.Fatal("nothing is reported in 20 s")
		panic("unreachable")
	}
}

// watchProcesses calls notify with whether the cgroup has processes, from its cgroup.events.
func watchProcesses(p *Poller, path string, notify func(populated bool, err error)) (*Watch, error) {
	return p.watchFile(path, fileEvents, 0, func(data []byte, err error) {
		n, ok := lookup(data, "populated")
		if err == nil && !ok {
			err = unexpected(path, fileEvents, data)
		}
		notify(n != 0, err)
	})
}

func TestWatchProcesses(t *testing.T) {
	tree, path := group(t, Resources{})
	p := polling(t, tree)
	reported := make(chan bool, 16)
	w, err := watchProcesses(p, path, func(s bool, err error) {
		if err != nil {
			t.Error(err)
		}
		reported <- s
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := next(t, reported); got {
		t.Errorf("at first: %+v", got)
	}
	cmd := play(t, tree, path, "wait")
	if got := next(t, reported); !got {
		t.Errorf("with a process: %+v", got)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if got := next(t, reported); got {
		t.Errorf("without it: %+v", got)
	}
	w.Close()
	w.Close()
	play(t, tree, path, "wait")
	select {
	case s := <-reported:
		t.Errorf("reported after its end: %+v", s)
	case <-time.After(50 * time.Millisecond):
	}
}

// What happens in a pause is reported when it is over, once.
func TestPollerPauses(t *testing.T) {
	tree, path := group(t, Resources{})
	p := polling(t, tree)
	const pause = 300 * time.Millisecond
	reported := make(chan time.Time, 64)
	w, err := p.watchFile(path, fileEvents, pause, func([]byte, error) { reported <- time.Now() })
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	first := next(t, reported)
	for range 5 {
		cmd := play(t, tree, path, "wait")
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	if second := next(t, reported); second.Sub(first) < pause {
		t.Errorf("reported again after %v", second.Sub(first))
	}
	time.Sleep(2 * pause)
	if len(reported) > 2 {
		t.Errorf("reported %d times more", len(reported))
	}
}

// TestWatchOfARemovedGroup removes a group between an event and the next poll of its file:
// the watch reports that once, and does not wake up again. The removal itself
// causes no event, so the group is removed by the callback, after which the pause begins.
func TestWatchOfARemovedGroup(t *testing.T) {
	tree, path := group(t, Resources{})
	p := polling(t, tree)
	reported := make(chan error, 64)
	before := make(chan int, 1)
	var once sync.Once
	w, err := p.watchFile(path, fileEvents, 100*time.Millisecond, func(_ []byte, err error) {
		once.Do(func() {
			before <- openFiles(t)
			err = errors.Join(err, tree.Delete(path))
		})
		reported <- err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := next(t, reported); err != nil {
		t.Fatal(err)
	}
	if err := next(t, reported); !errors.Is(err, ErrNotFound) {
		t.Errorf("reported %v", err)
	}
	open := <-before
	until(t, "its file is closed", func() bool { return openFiles(t) < open })
	time.Sleep(300 * time.Millisecond)
	if len(reported) > 0 {
		t.Errorf("reported %d times more", len(reported))
	}
	w.Close()
}

// A watch may be closed, and others made, by what is called for it.
func TestWatchClosesItself(t *testing.T) {
	tree, path := group(t, Resources{})
	p := polling(t, tree)
	reported := make(chan int, 8)
	watches := make(chan *Watch, 8)
	var again func(left int)
	again = func(left int) {
		w, err := watchProcesses(p, path, func(bool, error) {
			(<-watches).Close()
			if reported <- left; left > 0 {
				again(left - 1)
			}
		})
		if err != nil {
			t.Error(err)
			return
		}
		watches <- w
	}
	again(3)
	for want := 3; want >= 0; want-- {
		if got := next(t, reported); got != want {
			t.Errorf("reported %d, want %d", got, want)
		}
	}
}

func TestPollerEnds(t *testing.T) {
	tree, path := group(t, Resources{})
	p := polling(t, tree)
	if _, err := watchProcesses(p, path, func(bool, error) {}); err != nil {
		t.Fatal(err)
	}
	before := openFiles(t)
	p.Close()
	p.Close()
	until(t, "the files are closed", func() bool { return openFiles(t) <= before-3 })
	if _, err := watchProcesses(p, path, nil); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a watch on a closed one: %v", err)
	}
}

// One that never ran leaves no files open either, and does not run any more.
func TestPollerClosedBefore(t *testing.T) {
	tree, path := group(t, Resources{})
	before := openFiles(t)
	p, err := tree.NewPoller()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watchProcesses(p, path, func(bool, error) {}); err != nil {
		t.Fatal(err)
	}
	p.Close()
	if after := openFiles(t); after != before {
		t.Errorf("%d files were open, %d are", before, after)
	}
	if err := p.Run(t.Context()); err != nil {
		t.Error(err)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

// TestPollerRunsAgain has the epoll instance replaced by another file, so that
// epoll_wait fails. What was watched is watched by the next Run, and what
// happened in between is not lost.
func TestPollerRunsAgain(t *testing.T) {
	p, err := (&Tree{root: t.TempDir()}).NewPoller()
	if err != nil {
		t.Fatal(err)
	}
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	reported := make(chan struct{}, 16)
	if _, err := p.add(event, unix.EPOLLIN|unix.EPOLLET, 0, func(*Watch) { reported <- struct{}{} }); err != nil {
		t.Fatal(err)
	}
	happens := func() {
		t.Helper()
		if _, err := unix.Write(event, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
			t.Fatal(err)
		}
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if err := unix.Dup3(int(null.Fd()), p.epoll, unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	if err := p.Run(t.Context()); !errors.Is(err, unix.EINVAL) {
		t.Fatalf("Run without an epoll instance: %v", err)
	}
	if _, err := p.add(-1, 0, 0, nil); !errors.Is(err, os.ErrClosed) {
		t.Errorf("watch between two runs: %v", err)
	}
	happens() // while nobody waits
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	next(t, reported)
	happens()
	next(t, reported)
	cancel()
	if err := <-done; err != nil {
		t.Errorf("the second Run: %v", err)
	}
	if err := p.Run(t.Context()); err != nil {
		t.Errorf("Run after Close: %v", err)
	}
}

func TestWatchNothing(t *testing.T) {
	tree, path := group(t, Resources{})
	p := polling(t, tree)
	if _, err := watchProcesses(p, "tinylet-test-nowhere", nil); !errors.Is(err, ErrNotFound) {
		t.Errorf("no group: %v", err)
	}
	if _, err := watchProcesses(p, "../..", nil); err == nil {
		t.Error("a path that leaves the root is watched")
	}
	if _, err := p.openIn(path, "no.such.file", 0); !errors.Is(err, ErrController) {
		t.Errorf("no file: %v", err)
	}
}

// A process that outgrows its group is reported, with its death; a group that
// lives at its limit is not reported more often than allowed.
func TestWatchMemory(t *testing.T) {
	tree, path := group(t, Resources{MemoryMax: 16 << 20}, "memory")
	if err := os.WriteFile(filepath.Join(tree.root, path, "memory.swap.max"), []byte("0"), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	p := polling(t, tree)
	reported := make(chan MemoryEvents, 256)
	w, err := p.WatchMemory(path, 0, func(f MemoryEvents, err error) {
		if err != nil {
			t.Error(err)
		}
		reported <- f
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if got := next(t, reported); got.OOMKill != (Number{0, true}) {
		t.Errorf("at first: %+v", got)
	}
	cmd := play(t, tree, path, strconv.Itoa(64<<20))
	for got := (MemoryEvents{}); got.OOMKill.Value == 0; {
		got = next(t, reported)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("the process ended with %v", err)
	}
}

func TestWatchPids(t *testing.T) {
	tree, path := group(t, Resources{PidsMax: 2}, "pids")
	p := polling(t, tree)
	reported := make(chan uint64, 64)
	w, err := p.WatchPids(path, 0, func(n uint64, err error) {
		if err != nil {
			t.Error(err)
		}
		reported <- n
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if got := next(t, reported); got != 0 {
		t.Errorf("at first: %d", got)
	}
	play(t, tree, path, "wait") // Go has more threads than two
	if got := next(t, reported); got == 0 {
		t.Error("reported, and nothing is counted")
	}
}

// A process that waits for memory is reported.
func TestWatchPressure(t *testing.T) {
	tree, path := group(t, Resources{}, "memory")
	if err := os.WriteFile(filepath.Join(tree.root, path, "memory.high"), []byte("8M"), 0); err != nil {
		t.Fatal(err)
	}
	p := polling(t, tree)
	// A kernel of 32 bits does not hold back who is above memory.high (what
	// calculate_high_delay in mm/memcontrol.c works out is of 64 bits and kept
	// in a long): what is left there are its tries to free memory, 20 ms for
	// each 24 MB on a slow board.
	trigger := Trigger{Stall: 2 * time.Millisecond, Window: 500 * time.Millisecond}
	reported := make(chan struct{}, 64)
	w, err := p.WatchMemoryPressure(path, trigger, func() { reported <- struct{}{} })
	if errors.Is(err, ErrPressure) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := p.WatchMemoryPressure("/", trigger, func() {}); err != nil {
		t.Errorf("of the whole system: %v", err)
	}
	t.Cleanup(func() {
		for _, name := range []string{"memory.pressure", "memory.events", "memory.current", "cgroup.procs"} {
			text, err := os.ReadFile(filepath.Join(tree.root, path, name))
			t.Logf("%s at the end: %q, %v", name, text, err)
		}
	})
	play(t, tree, path, strconv.Itoa(32<<20))
	next(t, reported)
	next(t, reported) // and again, while it lasts
}

func TestWatchPressureRefused(t *testing.T) {
	tree := &Tree{root: t.TempDir()}
	writeGroup(t, tree, "off", map[string]string{fileControllers: "memory\n"})
	p := polling(t, tree)
	if _, err := p.WatchMemoryPressure("off", Trigger{}, nil); !errors.Is(err, ErrPressure) {
		t.Errorf("a kernel without pressure: %v", err)
	}
	if _, err := p.WatchMemoryPressure("nowhere", Trigger{}, nil); !errors.Is(err, ErrNotFound) {
		t.Errorf("no group: %v", err)
	}
}

func TestTriggerString(t *testing.T) {
	trigger := Trigger{Stall: 150 * time.Millisecond, Window: time.Second}
	if got, want := trigger.String(), "some 150000 1000000"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestUnexpectedNamesTheGroup(t *testing.T) {
	if err := unexpected("/kubepods/pod1", fileEvents, []byte("x")); !strings.Contains(err.Error(), "cgroup.events of cgroup /kubepods/pod1: ") {
		t.Error(err)
	}
}

// Hundreds of watches are one goroutine's work.
func TestPollerOfMany(t *testing.T) {
	tree, path := group(t, Resources{})
	p := polling(t, tree)
	var reported [100]chan bool
	for i := range reported {
		reported[i] = make(chan bool, 4)
		w, err := watchProcesses(p, path, func(s bool, _ error) { reported[i] <- s })
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
	}
	for i := range reported {
		next(t, reported[i])
	}
	play(t, tree, path, "wait")
	for i, c := range slices.Backward(reported[:]) {
		if got := next(t, c); !got {
			t.Errorf("%d: no processes", i)
		}
	}
}
