package cgroups

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	units "github.com/coreos/go-systemd/v22/dbus"
	"golang.org/x/sys/unix"
)

// The test is run three times over: as itself, as what becomes systemd in
// namespaces of its own, and as a service of that systemd.
const (
	roleVariable = "TINYLET_TEST_SYSTEMD"
	roleInit     = "init"
	roleService  = "service"
	dirVariable  = "TINYLET_TEST_DIR"
	systemdInit  = "/lib/systemd/systemd"
)

// TestOnSystemd runs slices on a real systemd: one that is process 1 of
// namespaces of its own, with nothing but this test as a service, below a
// cgroup of its own. It needs root, and systemd installed.
func TestOnSystemd(t *testing.T) {
	switch os.Getenv(roleVariable) {
	case roleInit:
		err := becomeSystemd(os.Getenv(dirVariable))
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
			t.Skip(err)
		}
		t.Fatal(err)
	case roleService:
		onSystemd(t)
		return
	}
	if _, err := os.Stat(systemdInit); err != nil {
		t.Skip("systemd is not installed")
	}
	group := ownGroup(t)
	dir := systemdFolder(t)
	exe, err := os.Executable()
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, exe, "-test.run=^TestOnSystemd$", "-test.v")
	cmd.Env = []string{roleVariable + "=" + roleInit, dirVariable + "=" + dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWNET,
		UseCgroupFD: true, CgroupFD: int(group.Fd()), Pdeathsig: unix.SIGKILL,
	}
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); errors.Is(err, unix.EPERM) {
		t.Skipf("no namespaces may be made: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	errRun := cmd.Wait()
	results, err := os.ReadFile(filepath.Join(dir, "run", "results"))
	t.Logf("%s%s", said.Bytes(), results)
	if strings.Contains(said.String(), "--- SKIP") {
		t.Skip("no namespaces may be set up")
	}
	if err != nil || errRun != nil || !strings.HasSuffix(string(results), "PASS\n") {
		t.Errorf("systemd ended with %v, its service's results: %v", errRun, err)
	}
}

// ownGroup makes a cgroup for the systemd of the test, and removes it with all
// that it leaves.
func ownGroup(t *testing.T) *os.File {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	for _, root := range []string{DefaultRoot, filepath.Join(DefaultRoot, "unified")} {
		tree, err := Open(root)
		if err != nil {
			continue
		}
		name := fmt.Sprintf("tinylet-test-%d", os.Getpid())
		if err := tree.Ensure(name, Resources{}); err != nil {
			t.Skipf("no cgroups may be made: %v", err)
		}
		t.Cleanup(func() {
			_ = tree.Kill(name)
			until(t, "end of the test's cgroup", func() bool { return tree.Delete(name) == nil })
		})
		group, err := os.Open(filepath.Join(root, name))
		must(t, err)
		t.Cleanup(func() { _ = group.Close() })
		return group
	}
	t.Skip("cgroup v2 is not mounted")
	return nil
}

// systemdFolder has the units of the systemd of the test, and what is mounted
// over the folders that it writes to.
func systemdFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	exe, err := os.Executable()
	must(t, err)
	for _, name := range []string{"run", "units", "dev"} {
		must(t, os.Mkdir(filepath.Join(dir, name), 0o755))
	}
	const unit = "[Unit]\nDefaultDependencies=no\n"
	for name, text := range map[string]string{
		"default.target": unit + "Requires=test.service\n",
		"dbus.socket":    unit + "[Socket]\nListenStream=/" + BusSocket + "\n",
		"dbus.service": unit + "Requires=dbus.socket\n[Service]\nType=notify\nNotifyAccess=main\n" +
			"ExecStart=dbus-daemon --system --address=systemd: --nofork --nopidfile --systemd-activation --syslog-only\n",
		"test.service": unit + "SuccessAction=exit-force\nFailureAction=exit-force\n" +
			"Wants=dbus.socket dbus.service\nAfter=dbus.socket dbus.service\n" +
			"[Service]\nType=oneshot\nTimeoutStartSec=120\nStandardOutput=file:/run/results\nStandardError=inherit\n" +
			"Environment=" + roleVariable + "=" + roleService + "\nExecStart=" + exe + " -test.run=^TestOnSystemd$ -test.v\n",
	} {
		must(t, os.WriteFile(filepath.Join(dir, "units", name), []byte(text), 0o644))
	}
	return dir
}

// becomeSystemd is the first process of the namespaces: it gives systemd what
// it expects, keeps from it what it would change of the host, and executes it.
func becomeSystemd(dir string) error {
	runtime.LockOSThread() // the cgroup namespace is the thread's until then
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("make a cgroup namespace: %w", err)
	}
	for _, step := range []struct {
		source, target, kind string
		flags                uintptr
	}{
		{"none", "/", "", unix.MS_REC | unix.MS_PRIVATE},
		{"proc", "/proc", "proc", 0},
		{"/proc/sys", "/proc/sys", "", unix.MS_BIND},
		{"none", "/proc/sys", "", unix.MS_REMOUNT | unix.MS_BIND | unix.MS_RDONLY},
		{filepath.Join(dir, "run"), "/run", "", unix.MS_BIND},
		{"cgroup2", "/sys/fs/cgroup", "cgroup2", 0},
		{"tmpfs", filepath.Join(dir, "dev"), "tmpfs", 0},
	} {
		if err := unix.Mount(step.source, step.target, step.kind, step.flags, ""); err != nil {
			return fmt.Errorf("mount %s: %w", step.target, err)
		}
	}
	for _, name := range []string{"null", "zero", "full", "random", "urandom"} { // no console
		file := filepath.Join(dir, "dev", name)
		if err := errors.Join(os.WriteFile(file, nil, 0o666), unix.Mount("/dev/"+name, file, "", unix.MS_BIND, "")); err != nil {
			return err
		}
	}
	if err := unix.Mount(filepath.Join(dir, "dev"), "/dev", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("mount /dev: %w", err)
	}
	if err := unix.Mount("none", "/", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("have the rest be read-only: %w", err)
	}
	return unix.Exec(systemdInit, []string{systemdInit, "--log-target=null"}, []string{
		"container=other", "SYSTEMD_UNIT_PATH=" + filepath.Join(dir, "units"), "SYSTEMD_GENERATOR_PATH=/none", "SYSTEMD_LOG_TARGET=null",
	})
}

// onSystemd is what runs as a service of systemd.
func onSystemd(t *testing.T) {
	tree, err := Open("")
	must(t, err)
	have, err := tree.Controllers()
	must(t, err)
	t.Logf("controllers: %q", have)
	private := "/run/private" // a root without a bus
	must(t, os.MkdirAll(filepath.Join(private, bootedDirectory), 0o755))
	must(t, os.Symlink("/"+privateSocket, filepath.Join(private, privateSocket)))
	t.Run("on its own socket", func(t *testing.T) { slicesOn(t, tree, tree.NewSlices(private)) })
	t.Run("on the system bus", func(t *testing.T) {
		if _, err := exec.LookPath("dbus-daemon"); err != nil {
			t.Skip("needs dbus-daemon (package dbus)")
		}
		s := tree.NewSlices("")
		must(t, s.systemd.use(func(c *connection) error {
			if names := c.bus.Names(); len(names) == 0 || !strings.HasPrefix(names[0], ":") {
				t.Errorf("not on the bus: %q", names)
			}
			return nil
		}))
		slicesOn(t, tree, s)
	})
}

func slicesOn(t *testing.T, tree *Tree, s *Slices) {
	defer s.Close()
	limits := Resources{CPUWeight: 20, CPUMax: CPUMax{Quota: 12500}, MemoryMax: 64 << 20, PidsMax: 40}
	for _, row := range []struct {
		name string
		do   func(t *testing.T)
	}{
		{"made with parents and limits", func(t *testing.T) {
			ensure(t, s, "/a.slice/a-b.slice/a-b-c_d.slice", limits)
			wantProperties(t, s, "a-b-c_d.slice", "20 67108864 40 130000")
			wantProperties(t, s, "a-b.slice", "max max max max")
		}},
		{"changed, and limits taken away", func(t *testing.T) {
			ensure(t, s, "/a.slice/a-b.slice/a-b-c_d.slice", Resources{CPUWeight: 30, MemoryMax: Unlimited})
			wantProperties(t, s, "a-b-c_d.slice", "30 max 40 130000")
			ensure(t, s, "/a.slice/a-b.slice", Resources{CPUWeight: 3})
			wantProperties(t, s, "a-b.slice", "3 max max max")
		}},
		{"a slice that systemd has made for another", func(t *testing.T) {
			must(t, s.systemd.use(func(c *connection) error { return c.startTransient("x-y.slice", nil) }))
			ensure(t, s, "/x.slice", limits)
			wantProperties(t, s, "x.slice", "20 67108864 40 130000")
			must(t, s.Delete("/x.slice"))
			if s.Exists("/x.slice") {
				t.Error("it is still there")
			}
		}},
		{"removed from outside", func(t *testing.T) {
			must(t, tree.Delete("/a.slice/a-b.slice/a-b-c_d.slice"))
			must(t, s.Delete("/a.slice/a-b.slice/a-b-c_d.slice"))
			ensure(t, s, "/a.slice/a-b.slice/a-b-c_d.slice", limits)
			wantProperties(t, s, "a-b-c_d.slice", "20 67108864 40 130000")
		}},
		{"with a process", func(t *testing.T) { occupied(t, s, "/a.slice/a-b.slice") }},
		{"stopped with all below, and made anew", func(t *testing.T) {
			must(t, s.Delete("/a.slice"))
			must(t, s.Delete("/a.slice"))
			if s.Exists("/a.slice") {
				t.Error("it is still there")
			}
			wantProperties(t, s, "a-b-c_d.slice", "max max max max")
			ensure(t, s, "/a.slice/a-b.slice", Resources{PidsMax: 7})
			wantProperties(t, s, "a-b.slice", "max max 7 max")
		}},
		{"systemd begins anew", func(t *testing.T) {
			must(t, unix.Kill(1, unix.SIGTERM)) // it executes itself, and all connections break
			until(t, "answer", func() bool { return s.systemd.use(func(*connection) error { return nil }) == nil })
			ensure(t, s, "/a.slice/a-b.slice", Resources{PidsMax: 8})
			wantProperties(t, s, "a-b.slice", "max max 8 max")
			must(t, s.Delete("/a.slice"))
		}},
		{"a name that systemd does not take", func(t *testing.T) {
			if err := s.Ensure("/"+strings.Repeat("x", 300)+".slice", limits); err == nil || errors.Is(err, ErrUnanswered) {
				t.Errorf("got %v", err)
			}
		}},
	} {
		t.Run(row.name, row.do)
	}
}

// ensure makes a slice. Where the kernel has no such controllers in cgroup v2,
// systemd knows the limits all the same.
func ensure(t *testing.T, s *Slices, path string, r Resources) {
	t.Helper()
	err := s.Ensure(path, r)
	missing, _ := s.Missing("cpu", "memory", "pids")
	if errors.Is(err, ErrController) && len(missing) > 0 {
		t.Logf("not written to the kernel: %v", err)
		err = s.Tree.Ensure(path, Resources{})
	}
	must(t, err)
	for _, line := range r.settings() {
		if slices.Contains(missing, line.controller) {
			continue
		}
		got, err := os.ReadFile(filepath.Join(s.root, path, line.file))
		if err != nil || !strings.HasPrefix(string(got), strings.Fields(line.value)[0]) && line.file != fileCPUMax {
			t.Errorf("%s of %s is %q, %v, want %q", line.file, path, got, err, line.value)
		}
	}
}

// wantProperties compares weight, memory, tasks and quota of a slice as
// systemd has them.
func wantProperties(t *testing.T, s *Slices, unit, want string) {
	t.Helper()
	var got []string
	must(t, s.systemd.use(func(c *connection) error {
		got = nil
		for _, name := range []string{"CPUWeight", "MemoryMax", "TasksMax", "CPUQuotaPerSecUSec"} {
			p, err := c.GetUnitTypePropertyContext(t.Context(), unit, "Slice", name)
			if err != nil {
				return err
			}
			text := fmt.Sprint(p.Value.Value())
			if p.Value.Value() == infinity {
				text = "max"
			}
			got = append(got, text)
		}
		return nil
	}))
	if strings.Join(got, " ") != want {
		t.Errorf("%s has %q, want %q", unit, got, want)
	}
}

// occupied holds that a slice with a process is not stopped, and is once the
// process was killed; also where the process is in a scope, as those of
// containers are.
func occupied(t *testing.T, s *Slices, path string) {
	for _, scope := range []bool{false, true} {
		cmd := exec.Command("sleep", "600")
		must(t, cmd.Start())
		if scope {
			must(t, s.systemd.use(func(c *connection) error {
				return c.startTransient("a-container.scope", []units.Property{
					units.PropSlice(filepath.Base(path)), units.PropPids(uint32(cmd.Process.Pid)),
					newProperty("Delegate", true), newProperty("DefaultDependencies", false),
				})
			}))
		} else {
			must(t, s.Tree.Ensure(path+"/plain", Resources{}))
			must(t, os.WriteFile(filepath.Join(s.root, path, "plain", fileProcs), fmt.Append(nil, cmd.Process.Pid), 0))
		}
		if err := s.Delete(path); !errors.Is(err, ErrBusy) {
			t.Errorf("with a process: %v", err)
		}
		if cmd.Process.Signal(syscall.Signal(0)) != nil {
			t.Error("it was killed")
		}
		must(t, s.Kill(path))
		_ = cmd.Wait()
		until(t, "end of the slice", func() bool { return s.Delete(path) == nil })
		if s.Exists(path) {
			t.Error("it is still there")
		}
	}
}
