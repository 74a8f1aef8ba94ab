//go:build board

package board

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// boardTime bounds each of these tests, the making of the image included.
const boardTime = 20 * time.Minute

// testLog sends the console and the progress to the test's log.
type testLog struct{ t *testing.T }

func (w testLog) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimRight(string(p), "\r\n"))
	return len(p), nil
}

// prepared returns the image of the board that BOARD_ARCH names.
func prepared(t *testing.T) (context.Context, *Image) {
	t.Helper()
	arch := Arch(os.Getenv("BOARD_ARCH"))
	if arch == "" {
		arch = ARM64
	}
	ctx, cancel := context.WithTimeout(t.Context(), boardTime)
	t.Cleanup(cancel)
	im, err := Prepare(ctx, Options{Arch: arch, Systemd: os.Getenv("BOARD_SYSTEMD") != "", Progress: testLog{t}})
	if err != nil {
		t.Fatal(err)
	}
	return ctx, im
}

// shell runs a script that has to work.
func shell(ctx context.Context, t *testing.T, vm *VM, script string) string {
	t.Helper()
	out, err := vm.Shell(ctx, script)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func booted(ctx context.Context, t *testing.T, im *Image, o VMOptions) *VM {
	t.Helper()
	start := time.Now()
	vm, err := Boot(ctx, im, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("console: %s", tail(vm.ConsoleLog(), 3000))
		}
		if err := vm.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := vm.WaitBooted(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("booted in %.1f s", time.Since(start).Seconds())
	if err := vm.WaitContainerd(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("containerd answers after %.1f s", time.Since(start).Seconds())
	return vm
}

func TestSmoke(t *testing.T) {
	ctx, im := prepared(t)
	vm := booted(ctx, t, im, VMOptions{Files: []File{
		{Path: "/etc/board-test", Mode: 0o640, Data: []byte("hello\n")},
		{Path: "/bin/alias", Link: "busybox"},
	}})
	t.Run("injected files", func(t *testing.T) {
		if got := shell(ctx, t, vm, "stat -c '%a %u %g' /etc/board-test; cat /etc/board-test; readlink /usr/bin/alias"); got != "640 0 0\nhello\nbusybox" {
			t.Errorf("injected files: %q", got)
		}
	})
	t.Run("kernel", func(t *testing.T) { kernelFeatures(ctx, t, vm) })
	t.Run("container", func(t *testing.T) {
		if got := shell(ctx, t, vm, "ctr -n k8s.io run --rm --runc-binary crun "+BusyboxImage+" one echo from the container"); got != "from the container" {
			t.Errorf("container printed %q", got)
		}
	})
	t.Run("files", func(t *testing.T) {
		big := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
		if err := vm.Put(ctx, "/root/sub/big", bytes.NewReader(big), 0o600); err != nil {
			t.Fatal(err)
		}
		back, err := vm.Get(ctx, "/root/sub/big")
		if err != nil || !bytes.Equal(back, big) {
			t.Errorf("file of %d bytes came back with %d: %v", len(big), len(back), err)
		}
	})
	t.Run("commands at the same time", func(t *testing.T) {
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				in := strings.Repeat("line\n", 1000)
				out, err := vm.RunCmd(ctx, Cmd{Argv: []string{"cat"}, Stdin: strings.NewReader(in)})
				if err != nil || string(out.Stdout) != in {
					t.Errorf("%d bytes of %d came back: %v", len(out.Stdout), len(in), err)
				}
			})
		}
		wg.Wait()
	})
	t.Run("cancelled command", func(t *testing.T) {
		inner, cancel := context.WithCancel(ctx)
		p, err := vm.Start(inner, Cmd{Argv: []string{"sh", "-c", "echo $$ > /run/cancelled; sleep 1000; true"}})
		if err != nil {
			t.Fatal(err)
		}
		pid := shell(ctx, t, vm, "until [ -s /run/cancelled ]; do sleep 0.1; done; cat /run/cancelled")
		cancel()
		if _, err := p.Wait(); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		shell(ctx, t, vm, "while kill -0 -"+pid+" 2>/dev/null; do sleep 0.1; done")
	})
	if err := vm.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if _, err := vm.Run(ctx, "true"); !errors.Is(err, ErrGone) {
		t.Errorf("command after the end: %v, want %v", err, ErrGone)
	}
}

// kernelFeatures checks what pods rest on.
func kernelFeatures(ctx context.Context, t *testing.T, vm *VM) {
	if got := shell(ctx, t, vm, "cat /sys/fs/cgroup/cgroup.controllers"); !containsAll(got, "cpuset", "cpu", "io", "memory", "pids") {
		t.Errorf("cgroup controllers: %s", got)
	}
	if got := shell(ctx, t, vm, "cat /proc/pressure/memory"); !strings.Contains(got, "full avg10=") {
		t.Errorf("memory pressure: %s", got)
	}
	// Modules are loaded by those who use them.
	shell(ctx, t, vm, "modprobe overlay && grep -w overlay /proc/filesystems")
	shell(ctx, t, vm, "modprobe -a nf_tables nft_chain_nat nft_nat nft_masq nft_fib_inet nft_reject_inet nft_numgen nft_ct sch_tbf && lsmod | grep -w nf_tables")
	shell(ctx, t, vm, "ip link add b0 type bridge && ip link add v0 type veth peer name v1 && ip link set v0 master b0 && ip link del v0 && ip link del b0")
	shell(ctx, t, vm, "mkdir /run/o /run/o/l /run/o/u /run/o/w /run/o/m && mount -t tmpfs t /run/o/u && mkdir /run/o/u/u /run/o/u/w && "+
		"mount -t overlay -o lowerdir=/run/o/l,upperdir=/run/o/u/u,workdir=/run/o/u/w o /run/o/m && umount /run/o/m /run/o/u")
	shell(ctx, t, vm, "mkdir /sys/fs/cgroup/try && echo +memory > /sys/fs/cgroup/cgroup.subtree_control && "+
		"echo 1 > /sys/fs/cgroup/try/memory.oom.group && cat /sys/fs/cgroup/try/memory.pressure && rmdir /sys/fs/cgroup/try")
}

func containsAll(list string, words ...string) bool {
	have := map[string]bool{}
	for w := range strings.FieldsSeq(list) {
		have[w] = true
	}
	for _, w := range words {
		if !have[w] {
			return false
		}
	}
	return true
}

// TestPowerCut keeps one disk over a power cut, a clock of 1970 and a board
// without the memory controller.
func TestPowerCut(t *testing.T) {
	ctx, im := prepared(t)
	disk := filepath.Join(t.TempDir(), "disk.qcow2")
	if err := NewDisk(ctx, im, disk); err != nil {
		t.Fatal(err)
	}
	t.Run("cut", func(t *testing.T) {
		vm := booted(ctx, t, im, VMOptions{Disk: disk, DiskCache: "writeback"})
		shell(ctx, t, vm, "echo kept > /root/kept && sync")
		if _, err := vm.Start(ctx, Cmd{Argv: []string{"sh", "-c", "while :; do cat /usr/bin/ctr > /root/lost; sync; done"}}); err != nil {
			t.Fatal(err)
		}
		shell(ctx, t, vm, "until [ -s /root/lost ]; do sleep 0.1; done")
		vm.Kill()
		if _, err := vm.Run(ctx, "true"); !errors.Is(err, ErrGone) {
			t.Errorf("command after the power cut: %v, want %v", err, ErrGone)
		}
	})
	t.Run("clock of 1970", func(t *testing.T) {
		vm := booted(ctx, t, im, VMOptions{Disk: disk, Date: time.Unix(0, 0)})
		if got := shell(ctx, t, vm, "cat /root/kept; date -u +%Y"); got != "kept\n1970" {
			t.Errorf("after the power cut: %q", got)
		}
		if got := shell(ctx, t, vm, "date -u -s '2031-05-06 07:08:09' > /dev/null; date -u +%Y-%m-%d"); got != "2031-05-06" {
			t.Errorf("clock set to %q", got)
		}
		if got := shell(ctx, t, vm, "ctr -n k8s.io run --rm --runc-binary crun "+BusyboxImage+" one date -u +%Y"); got != "2031" {
			t.Errorf("container's year: %q", got)
		}
		if _, err := vm.Run(ctx, "reboot"); err != nil && !errors.Is(err, ErrGone) {
			t.Fatal(err)
		}
		select {
		case <-vm.Ended():
		case <-ctx.Done():
			t.Fatal("a reboot does not end the machine")
		}
	})
	t.Run("no memory controller", func(t *testing.T) {
		date := time.Date(2029, 3, 4, 12, 0, 0, 0, time.UTC)
		vm := booted(ctx, t, im, VMOptions{Disk: disk, Date: date, ExtraCmdline: "cgroup_disable=memory", MemoryMB: 256, CPUs: 1})
		if got := shell(ctx, t, vm, "cat /sys/fs/cgroup/cgroup.controllers"); !containsAll(got, "cpu", "pids") || containsAll(got, "memory") {
			t.Errorf("cgroup controllers: %s", got)
		}
		if d := cmp.Diff("kept\n2029-03-04\n1", shell(ctx, t, vm, "cat /root/kept; date -u +%Y-%m-%d; nproc")); d != "" {
			t.Error(d)
		}
		if err := vm.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
}

// TestConsole types on the console as Interact does.
func TestConsole(t *testing.T) {
	ctx, im := prepared(t)
	vm := booted(ctx, t, im, VMOptions{})
	person, terminal := pty(t)
	out := &syncBuffer{}
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- interact(inner, vm, terminal, out) }()
	for _, step := range []struct{ keys, answer string }{
		{"", "board:~# "},
		{"sleep 1000\r", "sleep 1000"},
		{"\x03", "board:~# "}, // Ctrl-C ends the program in the board
		{"echo $((6 * 7)) on $(tty)\r", "42 on /dev/ttyAMA0"},
		{"\x1d", ""},
	} {
		seen := len(out.String())
		if _, err := person.WriteString(step.keys); err != nil {
			t.Fatal(err)
		}
		for step.answer != "" && !strings.Contains(out.String()[seen:], step.answer) {
			if ctx.Err() != nil {
				t.Fatalf("keys %q: %q", step.keys, out.String()[seen:])
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
