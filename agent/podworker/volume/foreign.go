package volume

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
)

// Directories of a kubelet that this package makes nothing in.
const (
	dirBlock      = "volumeDevices"
	dirPodPlugins = "plugins"
	dirNFS        = "kubernetes.io~nfs"
	dirPlugins    = "plugins" // below the root directory
	dirStaged     = "kubernetes.io/csi"
	fileCSI       = "vol_data.json"
)

// ownPlugins are the directories of the plugins of which this package mounts
// and deletes volumes. A git repository is a plain directory.
var ownPlugins = []string{
	dirEmptyDir, dirConfigMap, dirSecret, dirDownward, dirProjected, dirLocal,
	"kubernetes.io~host-path", "kubernetes.io~git-repo",
}

// Foreign is a volume in a pod's directory that belongs to a plugin which
// this agent does not have, such as CSI: a kubelet that ran on this node has
// set it up. It is neither unmounted nor deleted here, since only its plugin
// can do that without a loss of data. A volume of NFS is unmounted when its pod
// has ended, and is one of these only while it cannot be.
type Foreign struct {
	Pod types.UID
	// Plugin is the plugin's directory, such as kubernetes.io~csi; "" where only
	// a subPath mount is left.
	Plugin string
	Name   string
	// Driver is the CSI driver's name, "" if it is not known.
	Driver string
	// Mounted reports whether something is mounted there.
	Mounted bool

	keep []string // what stays, relative to the pod's directory
}

// String is the volume in a message.
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
func (v *Volumes) Foreign(uid types.UID) ([]Foreign, error) {
	s, err := newSurvey("", v.root, v.mountinfo)
	if err != nil || s == nil {
		return nil, err
	}
	return s.pod(string(uid))
}

// AllForeign lists the foreign volumes of all pods' directories.
func (v *Volumes) AllForeign() ([]Foreign, error) { return FindForeign("", v.root, v.mountinfo) }

// FindForeign lists the foreign volumes of all pods below the agent's root
// directory. prefix is "", or the place of a captured file system, whose mount
// table does not have it in its paths.
func FindForeign(prefix, rootDir, mountinfo string) ([]Foreign, error) {
	s, err := newSurvey(prefix, rootDir, mountinfo)
	if err != nil || s == nil {
		return nil, err
	}
	var out []Foreign
	for _, name := range s.podNames() {
		found, err := s.pod(name)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}

// FindStaged lists what a kubelet has mounted for plugins apart from pods, such
// as the device of a volume before it is bound into pods, as paths of the mount
// table. prefix is that of FindForeign.
func FindStaged(prefix, rootDir, mountinfo string) ([]string, error) {
	dir := filepath.Join(rootDir, dirPlugins, "kubernetes.io")
	if prefix == "" {
		real, err := filepath.EvalSymlinks(dir)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("look for staged volumes: %w", err)
		}
		dir = real
	} else if _, err := os.Stat(filepath.Join(prefix, dir)); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	mounts, err := readMounts(mountinfo, dir)
	var paths []string
	for _, m := range mounts {
		paths = append(paths, m.path)
	}
	return paths, err
}

// ForeignLeft reports whether anything of a foreign volume is on this node: in
// a pod's directory, mounted below the plugins' directory, or recorded there as
// staged. Where it cannot be found out, it is an error.
func (v *Volumes) ForeignLeft() (bool, error) {
	found, err := v.AllForeign()
	if err != nil || len(found) > 0 {
		return len(found) > 0, err
	}
	dir, err := filepath.EvalSymlinks(filepath.Join(v.root, dirPlugins))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for staged volumes: %w", err)
	}
	mounts, err := v.mountsBelow(dir)
	if err != nil || len(mounts) > 0 {
		return len(mounts) > 0, err
	}
	err = filepath.WalkDir(filepath.Join(dir, dirStaged), func(_ string, e fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case e.Name() == fileCSI:
			return errFound
		}
		return nil
	})
	if errors.Is(err, errFound) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for staged volumes: %w", err)
	}
	return false, nil
}

// Todo is what somebody has to do about the foreign volumes of one pod that
// has ended.
func (v *Volumes) Todo(uid types.UID, all []Foreign) string {
	texts := make([]string, len(all))
	for i := range all {
		texts[i] = all[i].String()
	}
	dir := filepath.Join(v.root, dirPods, string(uid))
	return fmt.Sprintf("volumes that a kubelet set up stay in %s: %s; start that kubelet until it has removed them, or unmount them and delete the directory",
		dir, strings.Join(texts, ", "))
}

// errFound ends a walk.
var errFound = errors.New("found")

// survey looks for foreign volumes at one time.
type survey struct {
	disk    string       // the directory of all pods
	pods    string       // as the mount table has it
	mounts  []mountPoint // below the root directory
	devices []string     // of foreign file systems
}

// newSurvey answers nil where there are no pods.
func newSurvey(prefix, rootDir, mountinfo string) (*survey, error) {
	root := rootDir
	if prefix == "" {
		// The mount table has no symbolic links in its paths.
		real, err := filepath.EvalSymlinks(rootDir)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		root = real
	}
	s := &survey{disk: filepath.Join(prefix, root, dirPods), pods: filepath.Join(root, dirPods)}
	if prefix == "" {
		real, err := filepath.EvalSymlinks(s.pods)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		s.disk, s.pods = real, real
	} else if _, err := os.Stat(s.disk); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	all, err := readMounts(mountinfo, "/")
	if err != nil {
		return nil, err
	}
	staged := filepath.Join(root, dirPlugins) + "/"
	for _, m := range all {
		switch {
		case strings.HasPrefix(m.path, staged):
			s.devices = append(s.devices, m.device)
		case strings.HasPrefix(m.path, s.pods+"/"):
			s.mounts = append(s.mounts, m)
			if pluginOf(strings.TrimPrefix(m.path, s.pods+"/")) != "" {
				s.devices = append(s.devices, m.device)
			}
		}
	}
	// A volume can be a directory of the node's own disk, which says nothing.
	var own unix.Stat_t
	if err := unix.Stat(s.disk, &own); err != nil {
		return nil, &fs.PathError{Op: "stat", Path: s.disk, Err: err}
	}
	device := fmt.Sprintf("%d:%d", unix.Major(uint64(own.Dev)), unix.Minor(uint64(own.Dev))) //nolint:unconvert // 32 bits on some machines
	s.devices = slices.DeleteFunc(s.devices, func(d string) bool { return d == device })
	return s, nil
}

// podNames are the directories of pods.
func (s *survey) podNames() []string {
	entries, err := os.ReadDir(s.disk)
	if err != nil {
		return nil // it is missing
	}
	var out []string
	for _, e := range entries {
		if e.IsDir() && component(e.Name()) == nil {
			out = append(out, e.Name())
		}
	}
	return out
}

// settled reports whether a pod's directory has nothing but foreign volumes:
// no more can be deleted.
func (s *survey) settled(uid string) bool {
	dir, err := os.Open(filepath.Join(s.disk, uid))
	if err != nil {
		return false
	}
	defer dir.Close()
	for _, name := range names(dir, ".") {
		if name != dirVolumes && name != dirBlock && name != dirSubPaths && name != dirPodPlugins {
			return false // as of most pods
		}
	}
	foreign, err := s.pod(uid)
	return err == nil && len(foreign) > 0 && holdsOnly(dir, ".", keepOf(foreign))
}

// pluginOf is the foreign plugin that has a path below the directory of all
// pods, or "".
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

// below reports whether something is mounted at a path in a pod's directory or
// below it.
func (s *survey) below(uid, rel string) bool {
	return slices.ContainsFunc(s.mounts, func(m mountPoint) bool { return within(m.path, filepath.Join(s.pods, uid, rel)) })
}

// within reports whether path is dir or below it.
func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, dir+"/")
}

// pod finds the foreign volumes of one pod, in the order of their names.
func (s *survey) pod(uid string) ([]Foreign, error) {
	if err := component(uid); err != nil {
		return nil, err
	}
	fd, err := unix.Open(filepath.Join(s.disk, uid), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if isAny(err, unix.ENOENT, unix.ENOTDIR, unix.ELOOP) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for foreign volumes of pod %q: %w", uid, err)
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
				f := Foreign{Pod: types.UID(uid), Plugin: plugin, Name: name, Mounted: s.below(uid, rel)}
				if f.Mounted || sub != dirPodPlugins && holdsFiles(dir, rel, 0) {
					f.keep = append(f.keep, rel)
					f.Driver = driverOf(dir, rel)
				}
				out = add(out, &f)
			}
		}
	}
	for _, name := range names(dir, dirSubPaths) {
		rel := filepath.Join(dirSubPaths, name)
		at := slices.IndexFunc(out, func(f Foreign) bool { return f.Name == name })
		foreign := slices.ContainsFunc(s.mounts, func(m mountPoint) bool {
			return within(m.path, filepath.Join(s.pods, uid, rel)) && (at >= 0 || slices.Contains(s.devices, m.device))
		})
		switch {
		case !foreign:
		case at >= 0:
			out[at].keep = append(out[at].keep, rel)
			out[at].Mounted = true
		default:
			out = append(out, Foreign{Pod: types.UID(uid), Name: name, Mounted: true, keep: []string{rel}})
		}
	}
	// What is left of the others are empty directories.
	return slices.DeleteFunc(out, func(f Foreign) bool { return len(f.keep) == 0 }), nil
}

// add puts the directories of one volume together.
func add(all []Foreign, f *Foreign) []Foreign {
	at := slices.IndexFunc(all, func(had Foreign) bool { return had.Plugin == f.Plugin && had.Name == f.Name })
	if at < 0 {
		return append(all, *f)
	}
	all[at].keep = append(all[at].keep, f.keep...)
	all[at].Mounted = all[at].Mounted || f.Mounted
	if all[at].Driver == "" {
		all[at].Driver = f.Driver
	}
	return all
}

// openWithin opens a file of a pod's directory, through no link and no mount.
func openWithin(dir *os.File, rel string, flags uint64) (*os.File, error) {
	fd, err := openat2(int(dir.Fd()), rel, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK,
		unix.RESOLVE_BENEATH|unix.RESOLVE_NO_XDEV|unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_NO_MAGICLINKS)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), rel), nil
}

// names are those in a directory, sorted; none where it cannot be read, which
// deleting it will tell.
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

// holdsFiles reports whether a path is anything but a directory that has only
// directories below it. What cannot be looked at counts as a file.
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

// maxRecord bounds what is read of a record of CSI, in bytes.
const maxRecord = 64 << 10

// driverOf reads the name of the driver from a kubelet's record of a volume.
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
		if err == nil && component(record.DriverName) == nil {
			return record.DriverName
		}
	}
	return ""
}
