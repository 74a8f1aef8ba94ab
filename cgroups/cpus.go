package cgroups

import (
	"fmt"
	"path/filepath"
	"strings"
)

const fileCPUs = "cpuset.cpus"

// CPUs reads cpuset.cpus: the list of CPUs that the group asks for, empty where
// it has those of the group above. A group that does not exist gives
// ErrNotFound, one without the cpuset controller ErrController.
func (t *Tree) CPUs(path string) (string, error) {
	dir, err := t.dir(path)
	if err != nil {
		return "", err
	}
	var buf [4096]byte // a list of 1024 CPUs has less than 3000 bytes
	n, err := read(dir+"/"+fileCPUs, buf[:])
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(buf[:n])), nil
}

// SetCPUs writes cpuset.cpus, also of the Payload, with the promises of CPUs.
func (t *Tree) SetCPUs(path, cpus string) error {
	dir, err := t.dir(path)
	if err != nil {
		return err
	}
	if _, err := t.CPUs(path); err != nil {
		return err
	}
	if err := write(filepath.Join(dir, fileCPUs), cpus); err != nil {
		return fmt.Errorf("set %s to %q in cgroup %s: %w", fileCPUs, cpus, dir, err)
	}
	if in := t.Payload(path); in != path {
		return t.SetCPUs(in, cpus)
	}
	return nil
}
