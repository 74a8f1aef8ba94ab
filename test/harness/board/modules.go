package board

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// moduleFolders are the parts of a kernel package that a board gets; what
// their modules depend on comes too. A slash at the end means all below.
var moduleFolders = []string{
	"kernel/arch/", "kernel/block/", "kernel/crypto/", "kernel/lib/", "kernel/mm/",
	"kernel/drivers/block", "kernel/drivers/char/hw_random", "kernel/drivers/net", "kernel/drivers/net/vxlan",
	"kernel/drivers/virtio", "kernel/drivers/watchdog", "kernel/drivers/rtc",
	"kernel/fs", "kernel/fs/ext4", "kernel/fs/fat", "kernel/fs/fuse", "kernel/fs/nls", "kernel/fs/overlayfs", "kernel/fs/squashfs",
	"kernel/net/802", "kernel/net/8021q", "kernel/net/bridge/", "kernel/net/core", "kernel/net/ipv4/", "kernel/net/ipv6/",
	"kernel/net/llc", "kernel/net/netfilter/", "kernel/net/packet", "kernel/net/sched", "kernel/net/unix", "kernel/net/xfrm",
}

// bootModules are loaded before the root file system is mounted: what it needs,
// and drivers that product kernels have built in. ext4 asks for its checksum
// by the algorithm's name, so no dependency leads to that module.
var bootModules = []string{
	"virtio_pci", "virtio_mmio", "virtio_blk", "virtio_console", "virtio_rng", "virtio_net", "crc32c_generic", "ext4",
}

// module is one kernel module, as its own .modinfo section describes it.
type module struct {
	path    string // from the folder of the kernel's release, such as kernel/lib/x.ko
	depends []string
	aliases []string
	softdep []string
}

// modules are a kernel's modules by their names with underscores.
type modules map[string]module

// moduleName gives the name under which the kernel knows a module file.
func moduleName(file string) string {
	name, _, _ := strings.Cut(path.Base(file), ".ko")
	return strings.ReplaceAll(name, "-", "_")
}

// loadModules uncompresses the needed modules under dir, a kernel release's
// folder, with what they depend on, deletes the others and reads them.
func loadModules(ctx context.Context, dir string) (modules, error) {
	packed := map[string]string{}
	var next []string
	err := filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil || !strings.Contains(e.Name(), ".ko") {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		packed[moduleName(rel)] = rel
		if neededFolder(path.Dir(rel)) {
			next = append(next, moduleName(rel))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list kernel modules: %w", err)
	}
	for _, n := range bootModules {
		if _, ok := packed[n]; ok {
			next = append(next, n)
		}
	}
	have := modules{}
	for len(next) > 0 {
		slices.Sort(next)
		next = slices.Compact(next)
		read, err := readModules(ctx, dir, packed, next)
		if err != nil {
			return nil, err
		}
		maps.Copy(have, read)
		next = nil
		for _, m := range read {
			for _, d := range m.depends {
				if _, ok := have[d]; !ok {
					next = append(next, d)
				}
			}
		}
	}
	for name, rel := range packed {
		if _, ok := have[name]; !ok {
			if err := os.Remove(filepath.Join(dir, rel)); err != nil {
				return nil, fmt.Errorf("drop kernel module: %w", err)
			}
		}
	}
	return have, nil
}

func neededFolder(folder string) bool {
	return slices.ContainsFunc(moduleFolders, func(w string) bool {
		return folder == strings.TrimSuffix(w, "/") || strings.HasSuffix(w, "/") && strings.HasPrefix(folder, w)
	})
}

func readModules(ctx context.Context, dir string, packed map[string]string, names []string) (modules, error) {
	args := []string{"-d", "-q"}
	for _, n := range names {
		rel, ok := packed[n]
		if !ok {
			return nil, fmt.Errorf("kernel module %s is wanted by another one and missing", n)
		}
		if strings.HasSuffix(rel, ".xz") {
			args = append(args, rel)
		}
	}
	if len(args) > 2 {
		if _, err := run(ctx, dir, nil, "xz", args...); err != nil {
			return nil, fmt.Errorf("uncompress kernel modules: %w", err)
		}
	}
	read := modules{}
	for _, n := range names {
		rel := strings.TrimSuffix(packed[n], ".xz")
		m, err := readModule(filepath.Join(dir, rel))
		if err != nil {
			return nil, err
		}
		m.path = rel
		read[n] = m
	}
	return read, nil
}

func readModule(file string) (module, error) {
	f, err := elf.Open(file)
	if err != nil {
		return module{}, fmt.Errorf("read kernel module %s: %w", file, err)
	}
	defer f.Close()
	s := f.Section(".modinfo")
	if s == nil {
		return module{}, fmt.Errorf("read kernel module %s: no .modinfo section", file)
	}
	b, err := s.Data()
	if err != nil {
		return module{}, fmt.Errorf("read kernel module %s: %w", file, err)
	}
	return parseModinfo(b), nil
}

func parseModinfo(b []byte) module {
	var m module
	for entry := range bytes.SplitSeq(b, []byte{0}) {
		key, value, _ := strings.Cut(string(entry), "=")
		switch key {
		case "depends":
			for d := range strings.SplitSeq(value, ",") {
				if d != "" {
					m.depends = append(m.depends, strings.ReplaceAll(d, "-", "_"))
				}
			}
		case "alias":
			m.aliases = append(m.aliases, value)
		case "softdep":
			m.softdep = append(m.softdep, value)
		}
	}
	return m
}

// loadOrder lists name and all that it depends on, dependencies first.
func (ms modules) loadOrder(names ...string) []string {
	var order []string
	seen := map[string]bool{}
	var visit func(string)
	visit = func(n string) {
		m, ok := ms[n]
		if !ok || seen[n] {
			return
		}
		seen[n] = true
		for _, d := range m.depends {
			visit(d)
		}
		order = append(order, n)
	}
	for _, n := range names {
		visit(n)
	}
	return order
}

// index returns the text files that modprobe reads, in the format of
// modules.dep(5).
func (ms modules) index() map[string]string {
	var dep, alias, soft strings.Builder
	for _, n := range slices.Sorted(maps.Keys(ms)) {
		m := ms[n]
		dep.WriteString(m.path + ":")
		order := ms.loadOrder(n)
		for _, d := range slices.Backward(order[:len(order)-1]) {
			dep.WriteString(" " + ms[d].path)
		}
		dep.WriteString("\n")
		for _, a := range m.aliases {
			fmt.Fprintf(&alias, "alias %s %s\n", a, n)
		}
		for _, s := range m.softdep {
			fmt.Fprintf(&soft, "softdep %s %s\n", n, s)
		}
	}
	return map[string]string{"modules.dep": dep.String(), "modules.alias": alias.String(), "modules.softdep": soft.String()}
}
