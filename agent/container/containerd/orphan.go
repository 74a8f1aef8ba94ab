package containerd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/container"
)

// labelKind is the label that distinguishes sandbox containers from others
// (internal/cri/labels in containerd).
const (
	labelKind   = "io.cri-containerd.kind"
	kindSandbox = "sandbox"
)

// orphan has the used fields of a containers.Container.
type orphan struct {
	id, snapshotter, snapshot string
	labels                    map[string]string
}

// RemoveLeft removes the orphaned tasks of a pod from containerd, and for sandboxes
// also the container record and the snapshot. It returns the number of containers
// with an orphaned task. The pod must be stopped in CRI and have no live processes.
//
// If a CRI client disconnects between the creation of a task and the response,
// containerd loses track of the task: it does not end the task, the shim stays, and
// removing the container fails because it has a task
// (plugins/services/tasks/local.go: Create). CRI then no longer lists a sandbox
// (internal/cri/server/podsandbox/sandbox_run.go), so RemoveLeft removes its record
// and its snapshot too. CRI can remove other containers once they have no task.
//
// It blocks until containerd and the shims have responded, or until ctx ends. It
// continues after errors and joins them.
func (t *Tasks) RemoveLeft(ctx context.Context, pod types.UID) (removed int, err error) {
	if pod == "" {
		return 0, nil
	}
	conn, err := dial(t.path)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	found, err := containersOf(ctx, conn, pod)
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, c := range found {
		had, err := c.remove(ctx, conn)
		if had {
			removed++
		}
		errs = append(errs, err)
	}
	return removed, errors.Join(errs...)
}

// containersOf lists a pod's containers, including sandboxes.
func containersOf(ctx context.Context, conn *grpc.ClientConn, pod types.UID) ([]orphan, error) {
	var request, answer message // containers.ListContainersRequest, containers.ListContainersResponse
	request.text(1, fmt.Sprintf("labels.%s==%s", strconv.Quote(container.LabelPodUID), strconv.Quote(string(pod))))
	if err := invoke(ctx, conn, "containers.v1.Containers/List", request, &answer); err != nil {
		return nil, wrap(ctx, err, "list containers of pod %q", pod)
	}
	var found []orphan
	err := each(answer, 1, protowire.BytesType, func(value []byte) error {
		c, err := decodeOrphan(inner(value))
		if err == nil && c.labels[container.LabelPodUID] == string(pod) {
			found = append(found, c)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list containers of pod %q: %w", pod, err)
	}
	return found, nil
}

// decodeOrphan decodes a containers.Container.
func decodeOrphan(m []byte) (c orphan, err error) {
	for number, to := range map[protowire.Number]*string{1: &c.id, 6: &c.snapshotter, 7: &c.snapshot} {
		value, err := field(m, number, protowire.BytesType)
		if err != nil {
			return orphan{}, err
		}
		*to = string(inner(value))
	}
	c.labels = make(map[string]string)
	err = each(m, 2, protowire.BytesType, func(entry []byte) error {
		key, err := field(inner(entry), 1, protowire.BytesType)
		if err != nil {
			return err
		}
		value, err := field(inner(entry), 2, protowire.BytesType)
		c.labels[string(inner(key))] = string(inner(value))
		return err
	})
	return c, err
}

// remove deletes the task of the container, whose processes must be dead, and for a
// sandbox the container record and the snapshot. had reports whether there was a task.
func (c *orphan) remove(ctx context.Context, conn *grpc.ClientConn) (had bool, err error) {
	var task message // tasks.DeleteTaskRequest
	task.text(1, c.id)
	switch err := wrap(ctx, invoke(ctx, conn, "tasks.v1.Tasks/Delete", task, nil), "delete task of container %q", c.id); {
	case errors.Is(err, container.ErrNotFound):
		return false, nil // CRI can remove the container
	case err != nil:
		return false, err
	}
	if c.labels[labelKind] != kindSandbox {
		return true, nil
	}
	var record, snapshot message // containers.DeleteContainerRequest, snapshots.RemoveSnapshotRequest
	record.text(1, c.id)
	if err := wrap(ctx, invoke(ctx, conn, "containers.v1.Containers/Delete", record, nil), "delete container %q", c.id); err != nil && !errors.Is(err, container.ErrNotFound) {
		return true, err
	}
	if c.snapshot == "" {
		return true, nil
	}
	snapshot.text(1, c.snapshotter)
	snapshot.text(2, c.snapshot)
	if err := wrap(ctx, invoke(ctx, conn, "snapshots.v1.Snapshots/Remove", snapshot, nil), "remove snapshot %q", c.snapshot); err != nil && !errors.Is(err, container.ErrNotFound) {
		return true, err
	}
	return true, nil
}

// shimProgram is the shim of runc and crun. The shims of other runtimes, such as
// virtual machines, are not handled.
const shimProgram = "containerd-shim-runc-v2"

// maxCommandLine limits the bytes that are read of a command line. Shims have shorter
// ones.
const maxCommandLine = 4 << 10

// EndShim kills the shim of a sandbox, and reports whether there was one. The shim
// serves all containers of the sandbox: containerd notices its exit and cleans up
// after it.
//
// A container process that imitates the shim is killed too.
func (t *Tasks) EndShim(sandboxID string) (bool, error) {
	if sandboxID == "" {
		return false, nil
	}
	entries, err := os.ReadDir(t.proc)
	if err != nil {
		return false, fmt.Errorf("find shim of sandbox %q: %w", sandboxID, err)
	}
	found := false
	var errs []error
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		was, err := t.killIfShim(pid, sandboxID)
		found = found || was
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return found, fmt.Errorf("kill shim of sandbox %q: %w", sandboxID, err)
	}
	return found, nil
}

func (t *Tasks) killIfShim(pid int, sandboxID string) (bool, error) {
	process, err := os.FindProcess(pid) // before its name is read, because the PID may be reused
	if err != nil {
		return false, fmt.Errorf("open process %d: %w", pid, err)
	}
	defer process.Release() //nolint:errcheck // the process was not waited for
	line, err := t.commandLine(pid)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !isShim(line, sandboxID) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return true, fmt.Errorf("kill process %d: %w", pid, err)
	}
	return true, nil
}

// maxReaders limits the concurrent reads of command lines: each one that hangs blocks
// a thread.
const maxReaders = 8

// commandLine returns the command line of a process, or fs.ErrNotExist if it has none
// or cannot be a shim.
//
// The kernel reads a command line from the memory of the process. A container with a
// FUSE file system can make that block forever. So commandLine only reads the command
// lines of processes whose program has a shim's name, in a separate goroutine, and
// after a timeout treats the process as not a shim.
func (t *Tasks) commandLine(pid int) ([]byte, error) {
	dir := filepath.Join(t.proc, strconv.Itoa(pid))
	program, err := os.Readlink(filepath.Join(dir, "exe"))
	if errors.Is(err, unix.ESRCH) || err == nil && path.Base(strings.TrimSuffix(program, " (deleted)")) != shimProgram {
		return nil, fs.ErrNotExist
	}
	if err != nil && !errors.Is(err, fs.ErrPermission) { // without CAP_SYS_PTRACE only the command line can be read
		return nil, err
	}
	if t.readers.Add(1) > maxReaders {
		t.readers.Add(-1)
		return nil, fmt.Errorf("read command line of process %d: %w", pid, errReaders)
	}
	type answer struct {
		line []byte
		err  error
	}
	got := make(chan answer, 1)
	go func() {
		defer t.readers.Add(-1)
		line, err := readLine(filepath.Join(dir, "cmdline"))
		got <- answer{line, err}
	}()
	timer := time.NewTimer(t.patience)
	defer timer.Stop()
	select {
	case a := <-got:
		return a.line, a.err
	case <-timer.C:
		return nil, fs.ErrNotExist
	}
}

var errReaders = errors.New("too many earlier reads hang: kill the processes that imitate a shim")

func readLine(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	line, err := io.ReadAll(io.LimitReader(f, maxCommandLine))
	if errors.Is(err, unix.ESRCH) { // the process has ended meanwhile
		return nil, fs.ErrNotExist
	}
	return line, err
}

// isShim reports whether a command line is that of a sandbox's shim, such as
// /usr/bin/containerd-shim-runc-v2 -namespace k8s.io -id ID -address SOCKET.
func isShim(line []byte, sandboxID string) bool {
	words := bytes.Split(line, []byte{0})
	return path.Base(string(words[0])) == shimProgram &&
		follows(words, "-namespace", namespace) && follows(words, "-id", sandboxID)
}

func follows(words [][]byte, flag, value string) bool {
	i := slices.IndexFunc(words, func(w []byte) bool { return string(w) == flag })
	return i >= 0 && i+1 < len(words) && string(words[i+1]) == value
}
