package ipam

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The test binary is also the other processes.
const workerEnv = "IPAM_TEST_WORKER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(workerEnv); dir != "" {
		if err := work(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const (
	workers    = 5
	goroutines = 5
	rounds     = 40 // of each goroutine: 1,000 leases
)

// crowded has 29 addresses for 25 goroutines with two leases each, so that it is sometimes
// exhausted.
var crowded = Range{Prefix: netip.MustParsePrefix("10.42.0.0/27")}

// work is one process. Its goroutines allocate and release, and check that no other process
// has their addresses.
func work(dir string) error {
	var (
		wg   sync.WaitGroup
		errs = make([]error, goroutines)
	)
	for i := range goroutines {
		wg.Go(func() {
			s, err := Open(Config{Dir: filepath.Join(dir, "leases"), BootID: "a"})
			for n := 0; n < rounds && err == nil; n++ {
				err = round(s, dir, fmt.Sprintf("%d/%d/%d", os.Getpid(), i, n%2))
			}
			errs[i] = err
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func round(s *Store, dir, owner string) error {
	l, err := s.Allocate(Request{Owner: owner, Ranges: []Range{crowded, {Prefix: netip.MustParsePrefix("fd00::/122")}}})
	if errors.As(err, new(ErrExhausted)) {
		_, err := s.Collect(livingOwners)
		return err
	}
	if err != nil {
		return err
	}
	release, err := witness(dir, l)
	if err != nil {
		return err
	}
	if rand.IntN(3) == 0 {
		err = s.SetDetail(owner, []byte(owner))
	}
	if got, errGet := s.Get(owner); errGet != nil || !got.same(l) {
		err = errors.Join(err, errGet, fmt.Errorf("had %+v, got %+v", l, got))
	}
	release()
	return errors.Join(err, s.Release(owner))
}

// livingOwners returns false for the leases of processes that have ended.
func livingOwners(l Lease) bool {
	pid, _, _ := strings.Cut(l.Owner, "/")
	n, err := strconv.Atoi(pid)
	return err == nil && !errors.Is(unix.Kill(n, 0), unix.ESRCH)
}

// witness locks a file for each address; the kernel releases the locks of a killed process.
// If a file is locked already, two owners have the address.
func witness(dir string, l Lease) (release func(), err error) {
	var files []*os.File
	release = func() {
		for _, f := range files {
			f.Close()
		}
	}
	for _, a := range l.Addresses {
		f, err := os.OpenFile(filepath.Join(dir, a.String()), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return release, err
		}
		files = append(files, f)
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			return release, fmt.Errorf("address %s of %s is another's too: %w", a, l.Owner, err)
		}
	}
	return release, nil
}

func start(t *testing.T, dir string) (*exec.Cmd, *strings.Builder) {
	t.Helper()
	said := new(strings.Builder)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), workerEnv+"="+dir)
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, said
}

// Several processes with several goroutines each create a thousand leases in a range that is
// too small for them. No address is in two leases.
func TestProcesses(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	for range workers {
		cmd, said := start(t, dir)
		wg.Go(func() {
			if err := cmd.Wait(); err != nil {
				t.Errorf("%v: %s", err, said)
			}
		})
	}
	wg.Wait()
	s := open(t, filepath.Join(dir, "leases"), "a")
	if left := files(t, s); len(left) != 0 {
		t.Errorf("left %q", left)
	}
}

// The same, while one process after the other is killed at a random point.
func TestProcessesKilled(t *testing.T) {
	dir := t.TempDir()
	deadline := time.Now().Add(3 * time.Second)
	var (
		wg    sync.WaitGroup
		kills = make([]int, workers)
	)
	for i := range workers {
		wg.Go(func() {
			for time.Now().Before(deadline) {
				cmd, said := start(t, dir)
				timer := time.AfterFunc(time.Duration(20+rand.IntN(150))*time.Millisecond, func() { _ = cmd.Process.Kill() })
				if err := cmd.Wait(); err != nil && cmd.ProcessState.ExitCode() >= 0 {
					t.Errorf("%v: %s", err, said)
				} else if err != nil {
					kills[i]++
				}
				timer.Stop()
			}
		})
	}
	wg.Wait()
	s := open(t, filepath.Join(dir, "leases"), "a")
	unique(t, s)
	t.Logf("killed %v, left %d files", kills, len(files(t, s)))
	if _, err := s.Collect(nil); err != nil {
		t.Error(err)
	}
	unique(t, s)
	tidy(t, s)
	if _, err := s.Collect(livingOwners); err != nil || len(files(t, s)) != 0 {
		t.Errorf("%v, left %q", err, files(t, s))
	}
}

// Concurrent calls for one owner return the same lease.
func TestOneOwnerManyCalls(t *testing.T) {
	dir := t.TempDir()
	var (
		wg   sync.WaitGroup
		got  [50]Lease
		errs [50]error
	)
	for i := range got {
		wg.Go(func() {
			s, err := Open(Config{Dir: dir, BootID: "a"})
			if err == nil {
				defer s.Close()
				got[i], err = s.Allocate(request("me", crowded))
			}
			errs[i] = err
		})
	}
	wg.Wait()
	for i := range got {
		if errs[i] != nil || !got[i].same(got[0]) {
			t.Errorf("%+v, %v, want %+v", got[i], errs[i], got[0])
		}
	}
	tidy(t, open(t, dir, "a"))
}

// Concurrent calls of all methods for one owner leave one lease or none, and no temporary
// file.
func TestOneOwnerAllCalls(t *testing.T) {
	s := open(t, t.TempDir(), "a")
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 50 {
				_, errFirst := s.Allocate(request("me", []Range{small, other}[(i+n)%2], dual))
				errAmend := s.SetDetail("me", []byte(fmt.Sprint(i, n)))
				_, errCollect := s.Collect(func(Lease) bool { return n%7 != 0 })
				_, errAll := s.List()
				var errRelease error
				if n%3 == 0 {
					errRelease = s.Release("me")
				}
				for _, err := range []error{errFirst, errCollect, errAll, errRelease} {
					if err != nil {
						t.Error(err)
					}
				}
				if errAmend != nil && !errors.Is(errAmend, fs.ErrNotExist) {
					t.Error(errAmend)
				}
			}
		})
	}
	wg.Wait()
	unique(t, s)
	if _, err := s.Collect(nil); err != nil {
		t.Error(err)
	}
	tidy(t, s)
	if names := files(t, s); slices.ContainsFunc(names, func(n string) bool { return strings.HasSuffix(n, tempSuffix) }) {
		t.Errorf("left %q", names)
	}
}
