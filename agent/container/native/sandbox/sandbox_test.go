package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// lab is a directory on a private mount, as the agent has.
func lab(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := errors.Join(unix.Mount("tmpfs", dir, "tmpfs", 0, ""), unix.Mount("", dir, "", unix.MS_PRIVATE, "")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func inside(t *testing.T, p Paths, command string) string {
	t.Helper()
	args := []string{}
	for option, path := range map[string]string{"--net=": p.Net, "--ipc=": p.IPC, "--uts=": p.UTS} {
		if path != "" {
			args = append(args, option+path)
		}
	}
	out, err := exec.Command("nsenter", append(args, "sh", "-c", command)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", command, err, out)
	}
	return strings.TrimSpace(string(out))
}

func mounts(t *testing.T, dir string) (out []string) {
	t.Helper()
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if path := strings.Fields(line)[4]; strings.HasPrefix(path, dir+"/") {
			out = append(out, path)
		}
	}
	return out
}

func TestSandbox(t *testing.T) {
	dir := lab(t)
	c := &Config{
		Dir: filepath.Join(dir, "pod"), NetNS: filepath.Join(dir, "netns", "pod"), Hostname: "web-0", ShmSize: 1 << 20, DNS: []byte("nameserver 10.0.0.10\n"),
		Sysctls: map[string]string{"net.ipv4.tcp_syncookies": "0", "kernel/shmmax": "4194304", "net.ipv4.ip_unprivileged_port_start": "80"},
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if err := Create(c); err != nil {
		t.Fatal(err)
	}
	p := c.Paths()
	const read = "hostname; cd /proc/sys; cat net/ipv4/tcp_syncookies kernel/shmmax net/ipv4/ip_unprivileged_port_start net/ipv4/ping_group_range"
	if got, want := inside(t, p, read), "web-0\n0\n4194304\n80\n0\t2147483647"; got != want {
		t.Errorf("inside: %q, want %q", got, want)
	}
	for path, want := range map[string]string{p.Hostname: "web-0\n", p.ResolvConf: "nameserver 10.0.0.10\n"} {
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s has %q, %v", path, got, err)
		}
	}
	var shm unix.Statfs_t
	if err := unix.Statfs(p.Shm, &shm); err != nil || shm.Type != unix.TMPFS_MAGIC || int64(shm.Blocks)*int64(shm.Bsize) != 1<<20 {
		t.Errorf("shm is %+v, %v", shm, err)
	}
	if now, err := os.Hostname(); err != nil || now != host {
		t.Errorf("the host is called %q, %v; was %q", now, err, host)
	}
	// A second Create replaces the first, as after a crash.
	if err := Create(c); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := Remove(c); err != nil {
			t.Fatal(err)
		}
	}
	if left := mounts(t, dir); len(left) > 0 {
		t.Errorf("mounts are left: %v", left)
	}
	for _, path := range []string{c.Dir, c.NetNS} {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestUsers makes a sandbox with a user namespace, to which its other namespaces belong.
func TestUsers(t *testing.T) {
	dir := lab(t)
	users := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 200000, Size: 65536}}
	c := &Config{
		Dir: filepath.Join(dir, "pod"), NetNS: filepath.Join(dir, "netns", "pod"), Hostname: "web-0", UIDs: users, GIDs: users,
		Sysctls: map[string]string{"net.ipv4.tcp_syncookies": "0", "kernel/shmmax": "4194304"},
	}
	for range 2 { // the second replaces the first
		if err := Create(c); err != nil {
			t.Fatal(err)
		}
	}
	p := c.Paths()
	out, err := exec.Command("nsenter", "--user="+p.User, "--net="+p.Net, "--ipc="+p.IPC, "--uts="+p.UTS, "sh", "-c",
		"hostname; hostname other && hostname; cat /proc/self/uid_map; cd /proc/sys; cat net/ipv4/tcp_syncookies kernel/shmmax net/ipv4/ip_unprivileged_port_start net/ipv4/ping_group_range").CombinedOutput()
	if want := "web-0 other 0 200000 65536 0 4194304 0 65534 65534"; err != nil || strings.Join(strings.Fields(string(out)), " ") != want {
		t.Errorf("inside: %q, %v, want %q", out, err, want)
	}
	if err := Remove(c); err != nil {
		t.Fatal(err)
	}
	if left := mounts(t, dir); len(left) > 0 {
		t.Errorf("mounts are left: %v", left)
	}
	c.UIDs = []syscall.SysProcIDMap{{ContainerID: 0, HostID: 200000, Size: 0}}
	if err := Create(c); err == nil {
		t.Error("a mapping of no user is accepted")
	}
	if err := Remove(c); err != nil {
		t.Fatal(err)
	}
	c = &Config{Dir: filepath.Join(dir, "host"), HostIPC: true, UIDs: users, GIDs: users}
	if err := Create(c); err != nil {
		t.Fatal(err)
	}
	if left := mounts(t, dir); len(left) != 1 || left[0] != c.Paths().User {
		t.Errorf("a pod with users and the namespaces of the host has mounts %v", left)
	}
	if err := Remove(c); err != nil {
		t.Fatal(err)
	}
}

func TestOfTheHost(t *testing.T) {
	dir := lab(t)
	c := &Config{Dir: filepath.Join(dir, "pod"), HostIPC: true, Hostname: "node"}
	if err := Create(c); err != nil {
		t.Fatal(err)
	}
	if p := c.Paths(); p.Net != "" || p.UTS != "" || p.IPC != "" || p.Shm != "" || len(mounts(t, dir)) > 0 {
		t.Errorf("a pod of the host has %+v, %v", p, mounts(t, dir))
	}
	if err := Remove(c); err != nil {
		t.Fatal(err)
	}
}

func TestSysctls(t *testing.T) {
	own := Config{NetNS: "/x"}
	for _, row := range []struct {
		config Config
		name   string
		want   string // the path, or the error
	}{
		{own, "net.core.somaxconn", "net/core/somaxconn"},
		{own, "net/core/somaxconn", "net/core/somaxconn"},
		{own, "net.ipv4.conf.eth0/1.forwarding", "net/ipv4/conf/eth0.1/forwarding"},
		{own, "kernel.shm_rmid_forced", "kernel/shm_rmid_forced"},
		{own, "kernel.sem", "kernel/sem"},
		{own, "kernel.msgmax", "kernel/msgmax"},
		{own, "fs.mqueue.queues_max", "fs/mqueue/queues_max"},
		{own, "kernel.shmx", "not in a namespace"},
		{own, "kernel.panic", "not in a namespace"},
		{own, "kernel.hostname", "not in a namespace"},
		{own, "vm.swappiness", "not in a namespace"},
		{own, "user.max_user_namespaces", "not in a namespace"},
		{own, "", "no name"},
		{own, "net.", "no name"},
		{own, "net", "not in a namespace"},
		{own, "net.ipv4..x", "no name"},
		{own, "net/../vm/swappiness", "no name"},
		{own, "net.//.vm", "no name"},
		{own, "../etc/passwd", "no name"},
		{Config{}, "net.core.somaxconn", "would be set on the host, whose network"},
		{Config{NetNS: "/x", HostIPC: true}, "kernel.sem", "would be set on the host, whose IPC"},
		{Config{}, "kernel.sem", "kernel/sem"},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.config.Sysctls = map[string]string{row.name: "1"}
			writes, err := plan(&row.config)
			got := fmt.Sprint(err)
			for _, w := range writes {
				if w.name == row.name {
					got = w.path
				}
			}
			if !strings.Contains(got, row.want) || (err != nil) != errors.Is(err, ErrSysctl) {
				t.Errorf("got %q, want %q", got, row.want)
			}
		})
	}
	if err := Create(&Config{Dir: filepath.Join(t.TempDir(), "pod"), NetNS: "/x", Sysctls: map[string]string{"vm.x": "1"}}); !errors.Is(err, ErrSysctl) {
		t.Errorf("Create: %v", err)
	}
}

func FuzzSysctlPath(f *testing.F) {
	f.Add("net.core.somaxconn")
	f.Add("net/../x")
	f.Fuzz(func(t *testing.T, name string) {
		writes, err := plan(&Config{NetNS: "/x", Sysctls: map[string]string{name: "1"}})
		for _, w := range writes {
			if path := filepath.Clean("/" + w.path); path != "/"+w.path || !ofNetwork(w.path) && !ofIPC(w.path) {
				t.Errorf("%q is written to %q, %v", name, path, err)
			}
		}
	})
}

// TestThreadThatEnds does not use the main thread, which would stay in the namespaces of a pod.
func TestThreadThatEnds(t *testing.T) {
	for range 1000 {
		if err := onThreadThatEnds(func() error {
			if unix.Gettid() == unix.Getpid() {
				return errors.New("it is the main thread")
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}
