package preflight

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/agent/node/machine"
	"github.com/tinylet/tinylet/agent/server/local"
	"github.com/tinylet/tinylet/board"
	"github.com/tinylet/tinylet/cgroups"
)

// Collect reads the facts. What cannot be read is unknown.
func Collect(ctx context.Context, o Options) Facts {
	o.setDefaults()
	t := tree(o.Root)
	rt := queryRuntime(ctx, o.Endpoint, t.sandboxImage)
	f := Facts{
		Input:       o.Input,
		Arch:        runtime.GOARCH,
		UID:         os.Geteuid(),
		Init:        t.word("proc/1/comm"),
		Kubelet:     local.KubeletRuns(t.path(local.DeviceManagerSocket)),
		Kernel:      t.kernel(),
		Cgroup:      t.cgroup(),
		Memory:      t.memory(),
		IPForward:   t.flag("proc/sys/net/ipv4/ip_forward"),
		IPv6Forward: t.flag("proc/sys/net/ipv6/conf/all/forwarding"),
		SharedMount: t.sharedRoot(),
		Directories: t.directories(&o),
		Volumes:     t.volumes(&o),
		Runtime:     rt,
		Packages:    t.packages(),
		Network:     t.network(&o, rt.Info),
	}
	f.Journal = t.journal(o.Journal)
	f.Runtime.RestartMonitorOff = t.restartMonitorOff()
	if f.Runtime.CgroupDriver == driverSystemd && f.Init == initSystemd {
		if err := cgroups.CheckSystemd(o.Root); err != nil {
			f.Runtime.Systemd = err.Error()
		} else if err := cgroups.CheckSystemBus(o.Root); err != nil {
			f.Runtime.SystemBus = err.Error()
		}
	}
	if o.Root == "/" {
		f.Network.Host = hostNetwork(f.Network.Bridge)
	}
	if f.NodeName == "" {
		f.NodeName = t.word("proc/sys/kernel/hostname")
	}
	f.Board, _ = board.Identify(o.Root) // zero for an unknown board
	for _, name := range board.CommandLineFiles {
		if t.exists(name) {
			f.BootCommandLine = "/" + name
			break
		}
	}
	return f
}

// tree is the root of a file system, the real one or a captured one.
type tree string

// maxRead bounds the size of one file, in bytes.
const maxRead = 8 << 20

func (t tree) path(name string) string { return filepath.Join(string(t), name) }

func (t tree) exists(name string) bool {
	_, err := os.Stat(t.path(name))
	return err == nil
}

func (t tree) read(name string) ([]byte, error) {
	f, err := os.Open(t.path(name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxRead))
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", f.Name(), err)
	}
	return b, nil
}

func (t tree) readGzip(name string) ([]byte, error) {
	b, err := t.read(name)
	if err != nil {
		return nil, err
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(z, maxRead))
}

// lines returns the lines of a file, each split into words. It returns none if the
// file cannot be read.
func (t tree) lines(name string) [][]string {
	b, _ := t.read(name) // nil on an error
	var out [][]string
	for line := range strings.Lines(string(b)) {
		if words := strings.Fields(line); len(words) > 0 {
			out = append(out, words)
		}
	}
	return out
}

// word returns the content of a file without surrounding space, or "" if it cannot
// be read.
func (t tree) word(name string) string {
	b, _ := t.read(name) // nil on an error
	return string(bytes.TrimSpace(b))
}

// flag reads a file that holds a number: 0 is No, any other content is Yes. A missing or
// empty file is Unknown.
func (t tree) flag(name string) Tristate {
	switch t.word(name) {
	case "":
		return Unknown
	case "0":
		return No
	}
	return Yes
}

func (t tree) cgroup() Cgroup {
	var c Cgroup
	versions := map[string]bool{}
	for _, m := range t.lines("proc/mounts") {
		if len(m) < 4 {
			continue
		}
		where, kind, options := m[1], m[2], strings.Split(m[3], ",")
		switch kind {
		case "cgroup2":
			if where == "/sys/fs/cgroup" {
				c.Kind = CgroupUnified
			}
			versions[kind] = true
		case "cgroup":
			versions[kind] = true
			for _, name := range controllers {
				if slices.Contains(options, name.v1) {
					c.InV1 = append(c.InV1, name.v2)
				}
			}
		}
	}
	switch {
	case c.Kind == CgroupUnified:
	case versions["cgroup"] && versions["cgroup2"]:
		c.Kind = CgroupHybrid
	case versions["cgroup"]:
		c.Kind = CgroupV1
	}
	c.Controllers = strings.Fields(t.word("sys/fs/cgroup/cgroup.controllers"))
	for _, row := range t.lines("proc/cgroups") {
		if len(row) == 4 && row[3] == "0" {
			c.Disabled = append(c.Disabled, row[0])
		}
	}
	return c
}

func (t tree) memory() Memory {
	load, _ := machine.ReadLoad(machine.Roots{Proc: t.path("proc"), Sys: t.path("sys")}, time.Time{}) // zero on an error
	return Memory{Total: load.Memory, Available: load.Available, Swap: load.SwapTotal}
}

// sharedRoot reports whether the mount of / has the optional field shared:N
// (proc_pid_mountinfo(5)).
func (t tree) sharedRoot() Tristate {
	b, _ := t.read("proc/self/mountinfo") // nil on an error
	notRoot := func(m *mountinfo.Info) (skip, stop bool) { return m.Mountpoint != "/", false }
	roots, err := mountinfo.GetMountsFromReader(bytes.NewReader(b), notRoot)
	if err != nil || len(roots) == 0 {
		return Unknown
	}
	return tristate(strings.Contains(roots[len(roots)-1].Optional, "shared:"))
}

const mebibyte = 1 << 20

// directories returns the facts of the directories that the node writes to.
func (t tree) directories(o *Options) []Directory {
	out := []Directory{
		{ID: "pods", Path: o.RootDir, Needs: 50 * mebibyte, LostWithMemory: "the pods and the state of the node"},
		{ID: "images", Path: "/var/lib/containerd", Needs: 50 * mebibyte, LostWithMemory: "the images and the containers"},
		{ID: "logs", Path: o.LogDir, Needs: 10 * mebibyte, LostWithMemory: "the containers' logs"},
		{ID: "run", Path: o.RunDir, Needs: mebibyte},
	}
	for i := range out {
		t.measure(&out[i])
	}
	return out
}

// measure sets the facts of a directory. It writes nothing: access(2) also detects
// read-only file systems.
func (t tree) measure(d *Directory) {
	d.ExistingPath = d.Path
	for !t.exists(d.ExistingPath) && d.ExistingPath != "/" && d.ExistingPath != "." {
		d.ExistingPath = filepath.Dir(d.ExistingPath)
	}
	real := t.path(d.ExistingPath)
	d.Writable = unix.Access(real, unix.W_OK) == nil
	var s unix.Statfs_t
	if err := unix.Statfs(real, &s); err != nil {
		return
	}
	kind := uint32(s.Type) // a signed 32-bit or 64-bit number
	d.InMemory = kind == unix.TMPFS_MAGIC || kind == unix.RAMFS_MAGIC
	block := uint64(max(s.Bsize, 0))
	d.Total, d.Free = s.Blocks*block, s.Bavail*block
	d.Inodes, d.InodesFree = s.Files, s.Ffree
}
