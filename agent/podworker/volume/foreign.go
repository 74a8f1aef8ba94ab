package volume

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
)

// Directories of a kubelet in which this package creates nothing.
const (
	dirBlock      = "volumeDevices"
	dirPodPlugins = "plugins"
	dirNFS        = "kubernetes.io~nfs"
	dirPlugins    = "plugins" // below the root directory
	dirStaged     = "kubernetes.io/csi"
	fileCSI       = "vol_data.json"
)

// ownPlugins are the directories of the plugins whose volumes this package
// mounts and deletes. A git repository volume is a plain directory.
var ownPlugins = []string{
	dirEmptyDir, dirConfigMap, dirSecret, dirDownward, dirProjected, dirLocal,
	"kubernetes.io~host-path", "kubernetes.io~git-repo",
}

// Foreign is a volume in a pod's directory that belongs to a plugin which this
// agent does not have, such as CSI. A kubelet that ran on this node before has
// set it up. The agent neither unmounts nor deletes it, because only its plugin
// can do that without loss of data. An NFS volume is an exception: it is unmounted when
// its pod has ended, and is foreign only until that succeeds.
type Foreign struct {
	Pod types.UID
	// Plugin is the plugin's directory, such as kubernetes.io~csi; empty if only
	// a subPath mount is left.
	Plugin string
	Name   string
	// Driver is the CSI driver's name; empty if it is not known.
	Driver string
	// Mounted reports whether something is mounted there.
	Mounted bool

	keepPaths []string // paths that stay, relative to the pod's directory
}

// String returns the volume in the form used in messages.
func (f *Foreign) String() string {
	text := f.Name
	if f.Plugin != "" {
		text = f.Plugin + "/" + f.Name
	}
	if f.Driver != "" {
		text += " of driver " + f.Driver
	}
	if !f.Mounted {
		text += " (not mounted)"
	}
	return text
}

// Foreign lists the foreign volumes in a pod's directory. It reads the mount
// table and enters no foreign file system.
func (v *Manager) Foreign(uid types.UID) ([]Foreign, error) {
	s, err := newForeignScan("", v.root, v.mountinfo)
	if err != nil || s == nil {
		return nil, err
	}
	return s.pod(string(uid))
}

// AllForeign lists the foreign volumes of all pods' directories.
func (v *Manager) AllForeign() ([]Foreign, error) { return FindForeign("", v.root, v.mountinfo) }

// FindForeign lists the foreign volumes of all pods below the agent's root
// directory. prefix is empty, or the directory of a captured file system; the
// paths in its mount table do not include the prefix.
func FindForeign(prefix, rootDir, mountinfo string) ([]Foreign, error) {
	s, err := newForeignScan(prefix, rootDir, mountinfo)
	if err != nil {
		return nil, err
	}
	names, err := s.podNames()
	if err != nil {
		return nil, err
	}
	var out []Foreign
	for _, name := range names {
		found, err := s.pod(name)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}

// FindStaged lists the mounts of a kubelet's plugins outside of pods, such as
// the device of a volume before it is bind-mounted into pods, as paths of the
// mount table. prefix is that of FindForeign.
func FindStaged(prefix, rootDir, mountinfo string) ([]string, error) {
	dir, err := inMountTable(prefix, filepath.Join(rootDir, dirPlugins, "kubernetes.io"))
	if err != nil {
		return nil, fmt.Errorf("list staged volumes: %w", err)
	}
	if dir == "" {
		return nil, nil
	}
	mounts, err := readMounts(mountinfo, dir)
	var paths []string
	for _, m := range mounts {
		paths = append(paths, m.Mountpoint)
	}
	return paths, err
}

// HasForeign reports whether a foreign volume is left on this node: in a pod's
// directory, mounted below the plugins' directory, or recorded there as staged.
// If it finds none and cannot read one of these, it returns an error.
func (v *Manager) HasForeign() (bool, error) {
	found, err := v.AllForeign()
	if err != nil || len(found) > 0 {
		return len(found) > 0, err
	}
	dir, err := inMountTable("", filepath.Join(v.root, dirPlugins))
	if err != nil {
		return false, fmt.Errorf("list staged volumes: %w", err)
	}
	if dir == "" {
		return false, nil
	}
	mounts, err := v.mountsBelow(dir)
	if err != nil || len(mounts) > 0 {
		return len(mounts) > 0, err
	}
	staged := false
	err = filepath.WalkDir(filepath.Join(dir, dirStaged), func(_ string, e fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case e.Name() == fileCSI:
			staged = true
			return fs.SkipAll
		}
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("list staged volumes: %w", err)
	}
	return staged, nil
}

// ActionRequired returns a message with the foreign volumes of one pod that has ended, and
// the action required from the operator.
func (v *Manager) ActionRequired(uid types.UID, all []Foreign) string {
	texts := make([]string, len(all))
	for i := range all {
		texts[i] = all[i].String()
	}
	dir := filepath.Join(v.root, dirPods, string(uid))
	return fmt.Sprintf("volumes set up by a kubelet remain in %s: %s; start that kubelet until it has removed them, or unmount them and delete the directory",
		dir, strings.Join(texts, ", "))
}

// ForeignRemedies returns ActionRequired of each terminated pod with foreign volumes.
func (v *Manager) ForeignRemedies(terminated func(types.UID) bool) ([]string, error) {
	all, err := v.AllForeign()
	if err != nil {
		return nil, err
	}
	var remedies []string
	for len(all) > 0 {
		uid := all[0].Pod
		n := slices.IndexFunc(all, func(f Foreign) bool { return f.Pod != uid })
		if n < 0 {
			n = len(all)
		}
		if terminated(uid) {
			remedies = append(remedies, v.ActionRequired(uid, all[:n]))
		}
		all = all[n:]
	}
	return remedies, nil
}

// foreignScan is a snapshot of the mount table for one search for foreign volumes.
type foreignScan struct {
	podsDir       string            // the parent of all pods' directories
	podsMountPath string            // the same as a path of the mount table
	mounts        []*mountinfo.Info // below podsMountPath
	devices       []uint64          // of foreign file systems
}

// inMountTable returns the path of a directory in the mount table, which has no symbolic
// links in its paths, or "" if the directory is missing. prefix is that of FindForeign.
func inMountTable(prefix, dir string) (path string, err error) {
	if prefix == "" {
		dir, err = filepath.EvalSymlinks(dir)
	} else {
		_, err = os.Stat(filepath.Join(prefix, dir))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return dir, err
}

// newForeignScan reads the mount table. It returns nil if there are no pods'
// directories.
func newForeignScan(prefix, rootDir, mountinfo string) (*foreignScan, error) {
	root, err := inMountTable(prefix, rootDir)
	if err != nil || root == "" {
		return nil, err
	}
	pods, err := inMountTable(prefix, filepath.Join(root, dirPods))
	if err != nil || pods == "" {
		return nil, err
	}
	s := &foreignScan{podsDir: filepath.Join(prefix, pods), podsMountPath: pods}
	all, err := readMounts(mountinfo, "/")
	if err != nil {
		return nil, err
	}
	staged := filepath.Join(root, dirPlugins) + "/"
	for _, m := range all {
		switch {
		case strings.HasPrefix(m.Mountpoint, staged):
			s.devices = append(s.devices, deviceOf(m))
		case strings.HasPrefix(m.Mountpoint, s.podsMountPath+"/"):
			s.mounts = append(s.mounts, m)
			if pluginOf(strings.TrimPrefix(m.Mountpoint, s.podsMountPath+"/")) != "" {
				s.devices = append(s.devices, deviceOf(m))
			}
		}
	}
	// A volume can be a directory on the node's own disk, whose device does not
	// identify it.
	var own unix.Stat_t
	if err := unix.Stat(s.podsDir, &own); err != nil {
		return nil, &fs.PathError{Op: "stat", Path: s.podsDir, Err: err}
	}
	s.devices = slices.DeleteFunc(s.devices, func(d uint64) bool { return d == uint64(own.Dev) }) //nolint:unconvert // 32 bits on some machines
	return s, nil
}

// podNames returns the names of the pods' directories; none if there is no parent
// directory.
func (s *foreignScan) podNames() ([]string, error) {
	if s == nil {
		return nil, nil
	}
	entries, err := os.ReadDir(s.podsDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list pod directories: %w", err)
	}
	var out []string
	for _, e := range entries {
		if e.IsDir() && checkComponent(e.Name()) == nil {
			out = append(out, e.Name())
		}
	}
	return out, nil
}

// onlyForeignLeft reports whether a pod's directory has only foreign volumes left, so that
// nothing can be deleted.
func (s *foreignScan) onlyForeignLeft(uid string) bool {
	dir, err := os.Open(filepath.Join(s.podsDir, uid))
	if err != nil {
		return false
	}
	defer dir.Close()
	for _, name := range names(dir, ".") {
		if name != dirVolumes && name != dirBlock && name != dirSubPaths && name != dirPodPlugins {
			return false // fast path for most pods
		}
	}
	foreign, err := s.pod(uid)
	return err == nil && len(foreign) > 0 && holdsOnly(dir, ".", keepTreeOf(foreign))
}

// pluginOf returns the foreign plugin to which a path belongs, or an empty
// string. The path is relative to the parent of all pods' directories.
func pluginOf(rel string) string {
	parts := strings.Split(rel, "/")
	if len(parts) < 4 {
		return ""
	}
	switch dir, plugin := parts[1], parts[2]; {
	case dir == dirBlock, (dir == dirVolumes || dir == dirPodPlugins) && !slices.Contains(ownPlugins, plugin):
		return plugin
	}
	return ""
}

// mountedBelow reports whether something is mounted at a path in a pod's directory or
// below it.
func (s *foreignScan) mountedBelow(uid, rel string) bool {
	return slices.ContainsFunc(s.mounts, func(m *mountinfo.Info) bool { return within(m.Mountpoint, filepath.Join(s.podsMountPath, uid, rel)) })
}

// within reports whether path is dir or below it.
func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, dir+"/")
}

// pod lists the foreign volumes of one pod. The volumes of a plugin are in the
// order of their names.
func (s *foreignScan) pod(uid string) ([]Foreign, error) {
	if err := checkComponent(uid); err != nil {
		return nil, err
	}
	fd, err := unix.Open(filepath.Join(s.podsDir, uid), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errorIsAny(err, unix.ENOENT, unix.ENOTDIR, unix.ELOOP) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list foreign volumes of pod %q: %w", uid, err)
	}
	dir := os.NewFile(uintptr(fd), uid)
	defer dir.Close()
	var out []Foreign
	for _, sub := range []string{dirVolumes, dirBlock, dirPodPlugins} {
		for _, plugin := range names(dir, sub) {
			if pluginOf(filepath.Join(uid, sub, plugin, "x")) == "" {
				continue
			}
			for _, name := range names(dir, filepath.Join(sub, plugin)) {
				rel := filepath.Join(sub, plugin, name)
				f := Foreign{Pod: types.UID(uid), Plugin: plugin, Name: name, Mounted: s.mountedBelow(uid, rel)}
				if f.Mounted || sub != dirPodPlugins && holdsFiles(dir, rel, 0) {
					f.keepPaths = append(f.keepPaths, rel)
					f.Driver = driverOf(dir, rel)
				}
				out = mergeForeign(out, &f)
			}
		}
	}
	for _, name := range names(dir, dirSubPaths) {
		rel := filepath.Join(dirSubPaths, name)
		at := slices.IndexFunc(out, func(f Foreign) bool { return f.Name == name })
		foreign := slices.ContainsFunc(s.mounts, func(m *mountinfo.Info) bool {
			return within(m.Mountpoint, filepath.Join(s.podsMountPath, uid, rel)) && (at >= 0 || slices.Contains(s.devices, deviceOf(m)))
		})
		switch {
		case !foreign:
		case at >= 0:
			out[at].keepPaths = append(out[at].keepPaths, rel)
			out[at].Mounted = true
		default:
			out = append(out, Foreign{Pod: types.UID(uid), Name: name, Mounted: true, keepPaths: []string{rel}})
		}
	}
	// The other volumes have only empty directories left.
	return slices.DeleteFunc(out, func(f Foreign) bool { return len(f.keepPaths) == 0 }), nil
}

// mergeForeign merges f into the entry of the same volume, or appends it.
func mergeForeign(all []Foreign, f *Foreign) []Foreign {
	at := slices.IndexFunc(all, func(had Foreign) bool { return had.Plugin == f.Plugin && had.Name == f.Name })
	if at < 0 {
		return append(all, *f)
	}
	all[at].keepPaths = append(all[at].keepPaths, f.keepPaths...)
	all[at].Mounted = all[at].Mounted || f.Mounted
	all[at].Driver = cmp.Or(all[at].Driver, f.Driver)
	return all
}

// openWithin opens a file in a pod's directory. It follows no symbolic link and
// crosses no mount point.
func openWithin(dir *os.File, rel string, flags uint64) (*os.File, error) {
	fd, err := openat2(int(dir.Fd()), rel, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK,
		unix.RESOLVE_BENEATH|unix.RESOLVE_NO_XDEV|unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_NO_MAGICLINKS)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), rel), nil
}

// names returns the sorted names in a directory. It returns none if the directory
// cannot be read; its deletion will then return the error.
func names(dir *os.File, rel string) []string {
	f, err := openWithin(dir, rel, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil
	}
	defer f.Close()
	all, err := f.Readdirnames(-1)
	if err != nil {
		return nil
	}
	slices.Sort(all)
	return all
}

// holdsFiles reports whether a path is, or has below it, anything other than a
// directory. A path that cannot be read counts as a file; a missing one does not.
func holdsFiles(dir *os.File, rel string, depth int) bool {
	f, err := openWithin(dir, rel, unix.O_RDONLY|unix.O_DIRECTORY)
	if errors.Is(err, unix.ENOENT) {
		return false
	}
	if err != nil || depth > maxDepth {
		if err == nil {
			_ = f.Close() // nothing was written
		}
		return true
	}
	defer f.Close()
	for {
		entries, err := f.ReadDir(batch)
		for _, e := range entries {
			if !e.IsDir() || holdsFiles(f, e.Name(), depth+1) {
				return true
			}
		}
		if err != nil {
			return !errors.Is(err, io.EOF)
		}
	}
}

// maxRecord is the maximum number of bytes that are read of a CSI record.
const maxRecord = 64 << 10

// driverOf reads the CSI driver's name from a kubelet's record of a volume. It
// returns an empty string if there is none.
func driverOf(dir *os.File, rel string) string {
	for _, place := range []string{fileCSI, "data/" + fileCSI} {
		f, err := openWithin(dir, filepath.Join(rel, place), unix.O_RDONLY)
		if err != nil {
			continue
		}
		var record struct {
			DriverName string `json:"driverName"`
		}
		err = json.NewDecoder(io.LimitReader(f, maxRecord)).Decode(&record)
		_ = f.Close() // nothing was written
		if err == nil && checkComponent(record.DriverName) == nil {
			return record.DriverName
		}
	}
	return ""
}
