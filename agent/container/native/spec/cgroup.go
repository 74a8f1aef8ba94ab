package spec

import (
	"path"
	"strings"
)

const (
	// defaultParent is the parent of cgroups in sandboxes without one: containerd's for its
	// namespace.
	defaultParent = "/k8s.io"
	sliceSuffix   = ".slice"
	// scopePrefix begins the names of scopes, as with the CRI plugin (getCgroupsPath in
	// server/helpers.go).
	scopePrefix = "cri-containerd"
)

// IsSlice reports whether a cgroup parent is a slice of systemd.
func IsSlice(parent string) bool { return strings.HasSuffix(parent, sliceSuffix) }

// cgroupsPath returns linux.cgroupsPath in the OCI spec: the path of a container's cgroup below
// the parent, or for a slice the name of the scope in the form slice:prefix:name.
func cgroupsPath(parent, id string) string {
	if IsSlice(parent) {
		return path.Base(parent) + ":" + scopePrefix + ":" + id
	}
	return path.Join(ParentCgroup(parent), id)
}

// ParentCgroup returns the path of the cgroup that a sandbox' containers have theirs in, below
// the root of the hierarchy. The directory of a slice is in that of each prefix of its name
// (systemd.slice(5)).
func ParentCgroup(parent string) string {
	if parent == "" {
		return defaultParent
	}
	if !IsSlice(parent) {
		return path.Join("/", parent)
	}
	name := strings.TrimSuffix(path.Base(parent), sliceSuffix)
	out := "/"
	for i, c := range name {
		if c == '-' && i > 0 {
			out = path.Join(out, name[:i]+sliceSuffix)
		}
	}
	if name == "-" {
		return out
	}
	return path.Join(out, name+sliceSuffix)
}

// ContainerCgroup returns the path of a container's cgroup, which the OCI runtime makes of
// linux.cgroupsPath.
func ContainerCgroup(parent, id string) string {
	if IsSlice(parent) {
		id = scopePrefix + "-" + id + ".scope"
	}
	return path.Join(ParentCgroup(parent), id)
}
