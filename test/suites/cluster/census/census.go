// Package census counts what a board holds of pods at one moment: sandboxes
// and containers as the runtime lists them, containers that have processes as
// the kernel does, and what lies on the disk.
package census

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
)

// Census is what a board holds.
type Census struct {
	Sandboxes  []Sandbox
	Containers []Container
	// Alive are the UIDs of pods by the ids of the cgroups in which processes
	// run: sandboxes and containers, also such as the runtime does not list.
	Alive map[string]string
	// Runs are the highest numbers of container logs, by container and UID.
	Runs map[string]map[string]int
	// Folders are the UIDs of pods that have one.
	Folders []string
	// Files are the contents of the pods' ConfigMap volumes, by UID and by
	// volume/file.
	Files map[string]map[string]string
}

// Sandbox is one pod sandbox.
type Sandbox struct {
	ID, UID, Pod string
	Attempt      uint32
	Ready        bool
}

// Container is one container.
type Container struct {
	ID, Sandbox, UID, Pod, Name string
	Attempt                     uint32
	State                       string // CRI's word without its prefix: RUNNING, EXITED
}

// Places are the folders that Read reads.
type Places struct {
	Cgroups string // of all pods, of the driver cgroupfs
	Logs    string
	Pods    string
}

// Board has the places of a board with tinylet's defaults.
var Board = Places{Cgroups: "/sys/fs/cgroup/kubepods", Logs: "/var/log/pods", Pods: "/var/lib/kubelet/pods"}

// Runtime is what Read asks a runtime.
type Runtime interface {
	ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
	ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
}

// Read takes a census. What comes and goes meanwhile may be in a part of it
// alone.
func Read(ctx context.Context, r Runtime, at Places) (*Census, error) {
	c := &Census{Alive: map[string]string{}, Runs: map[string]map[string]int{}, Files: map[string]map[string]string{}}
	if err := c.list(ctx, r); err != nil {
		return nil, err
	}
	if err := errors.Join(c.alive(at.Cgroups), c.runs(at.Logs), c.folders(at.Pods)); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *Census) list(ctx context.Context, r Runtime) error {
	sandboxes, err := r.ListPodSandbox(ctx, nil)
	if err != nil {
		return err
	}
	for _, s := range sandboxes {
		c.Sandboxes = append(c.Sandboxes, Sandbox{
			ID: s.GetId(), UID: s.GetMetadata().GetUid(), Pod: s.GetMetadata().GetName(), Attempt: s.GetMetadata().GetAttempt(),
			Ready: s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY,
		})
	}
	containers, err := r.ListContainers(ctx, nil)
	if err != nil {
		return err
	}
	for _, x := range containers {
		c.Containers = append(c.Containers, Container{
			ID: x.GetId(), Sandbox: x.GetPodSandboxId(), Name: x.GetMetadata().GetName(), Attempt: x.GetMetadata().GetAttempt(),
			UID: x.GetLabels()[container.LabelPodUID], Pod: x.GetLabels()[container.LabelPodName],
			State: strings.TrimPrefix(x.GetState().String(), "CONTAINER_"),
		})
	}
	return nil
}

// alive walks kubepods/[burstable|besteffort/]pod<uid>/<id>.
func (c *Census) alive(root string) error {
	return walk(root, func(path string, d fs.DirEntry) error {
		if d.Name() != "cgroup.procs" {
			return nil
		}
		procs, err := os.ReadFile(path)
		if err != nil || len(procs) == 0 {
			return err
		}
		// The processes may stand in a cgroup that the container made.
		parts := strings.Split(path, string(filepath.Separator))
		for i, part := range parts[:len(parts)-2] {
			if uid, ok := strings.CutPrefix(part, "pod"); ok && i > 0 {
				c.Alive[parts[i+1]] = uid
			}
		}
		return nil
	})
}

// runs walks <namespace>_<name>_<uid>/<container>/<number>.log.
func (c *Census) runs(root string) error {
	return walk(root, func(path string, _ fs.DirEntry) error {
		dir := filepath.Dir(path)
		parts := strings.Split(filepath.Base(filepath.Dir(dir)), "_")
		n, ok := number(filepath.Base(path))
		if !ok || len(parts) != 3 {
			return nil
		}
		of := c.Runs[parts[2]]
		if of == nil {
			of = map[string]int{}
			c.Runs[parts[2]] = of
		}
		of[filepath.Base(dir)] = max(n, of[filepath.Base(dir)])
		return nil
	})
}

func number(log string) (n int, ok bool) {
	first, _, _ := strings.Cut(log, ".")
	n, err := strconv.Atoi(first)
	return n, err == nil
}

func (c *Census) folders(root string) error {
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		c.Folders = append(c.Folders, e.Name())
		if err := c.files(e.Name(), filepath.Join(root, e.Name(), "volumes", "kubernetes.io~configmap")); err != nil {
			return err
		}
	}
	return nil
}

func (c *Census) files(uid, root string) error {
	paths, err := filepath.Glob(filepath.Join(root, "*", "[^.]*"))
	if err != nil {
		return err
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read the volume of pod %s: %w", uid, err)
		}
		if c.Files[uid] == nil {
			c.Files[uid] = map[string]string{}
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		c.Files[uid][name] = string(data)
	}
	return nil
}

// walk visits the files below root. What goes away meanwhile is left out.
func walk(root string, visit func(path string, d fs.DirEntry) error) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			err = visit(path, d)
		}
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
			return nil
		}
		return err
	})
}
