package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tinylet/tinylet/agent/pod"
)

// tmpfs mounts a tmpfs at path, unless one is mounted there already. The mount outlives the
// agent.
func (v *Manager) tmpfs(path string, options []string) error {
	// The content must not be swapped to a disk. Linux before 6.4 does not have
	// the option.
	err := v.mountOnce(path, "tmpfs", append(options[:len(options):len(options)], "noswap"))
	if errors.Is(err, unix.EINVAL) {
		err = v.mountOnce(path, "tmpfs", options)
	}
	return err
}

// statfsTypes are the statfs(2) types of the file systems that are mounted for
// volumes.
var statfsTypes = map[string]int64{"tmpfs": unix.TMPFS_MAGIC, "hugetlbfs": unix.HUGETLBFS_MAGIC}

// mountOnce mounts a file system at path, unless one of its type is mounted there. It
// returns an error if one of another type is mounted there.
func (v *Manager) mountOnce(path, fstype string, options []string) error {
	mounted, err := v.mounted(path)
	if err != nil {
		return err
	}
	if mounted {
		var st unix.Statfs_t
		if err := unix.Statfs(path, &st); err != nil {
			return &fs.PathError{Op: "statfs", Path: path, Err: err}
		}
		if int64(uint32(st.Type)) != statfsTypes[fstype] {
			return fmt.Errorf("unexpected file system of type %#x mounted at %s, want %s", uint32(st.Type), path, fstype)
		}
		return nil
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	if err := v.mount(fstype, real, fstype, 0, strings.Join(options, ",")); err != nil {
		return fmt.Errorf("mount %s at %s: %w", fstype, path, err)
	}
	return nil
}

// pageSize returns the size of huge pages in bytes, for the option pagesize of hugetlbfs. It
// is the size in the medium, which the pod must request. If the medium has none, it is the
// only size that the pod requests.
func pageSize(p *v1.Pod, medium v1.StorageMedium) (string, error) {
	named, _ := strings.CutPrefix(string(medium), string(v1.StorageMediumHugePagesPrefix))
	lists := []v1.ResourceList{}
	if p.Spec.Resources != nil {
		lists = append(lists, p.Spec.Resources.Requests, p.Spec.Resources.Limits)
	}
	for c := range pod.Containers(&p.Spec) {
		lists = append(lists, c.Resources.Requests, c.Resources.Limits)
	}
	found := ""
	for _, list := range lists {
		for name := range list {
			size, ok := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix)
			switch {
			case !ok, medium != v1.StorageMediumHugePages && size != named, size == found:
			case found != "":
				return "", fmt.Errorf("emptyDir.medium is %s, but the containers request huge pages of sizes %s and %s: name the size in the medium", medium, found, size)
			default:
				found = size
			}
		}
	}
	if found == "" {
		return "", fmt.Errorf("emptyDir.medium is %s, but no container requests such huge pages", medium)
	}
	q, err := resource.ParseQuantity(found)
	if err != nil {
		return "", fmt.Errorf("emptyDir.medium %q: %w", medium, err)
	}
	return fmt.Sprint(q.Value()), nil
}
