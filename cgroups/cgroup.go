package cgroups

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Exists reports whether there is a cgroup at path.
func (t *Tree) Exists(path string) bool {
	dir, err := t.dir(path)
	return err == nil && isDir(dir)
}

// List returns the names of the cgroups directly below path, sorted, or ErrNotFound. The
// library lists processes, but no cgroups.
func (t *Tree) List(path string) ([]string, error) {
	dir, err := t.dir(path)
	if err != nil {
		return nil, err
	}
	names, err := children(dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("list cgroup %s: %w", dir, err)
	}
	return names, nil
}

func children(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// ID returns the kernel's number of a cgroup, or ErrNotFound. A later cgroup at the same
// path has another number: kernfs does not use an inode number twice.
func (t *Tree) ID(path string) (uint64, error) {
	dir, err := t.dir(path)
	if err != nil {
		return 0, err
	}
	var st unix.Stat_t
	if _, err := retry(func() (int, error) { return 0, unix.Lstat(dir, &st) }); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = ErrNotFound
		}
		return 0, fmt.Errorf("number of cgroup %s: %w", dir, err)
	}
	return st.Ino, nil
}

// Populated reports whether a cgroup, or one below it, has processes, from its
// cgroup.events. A cgroup that does not exist has none.
func (t *Tree) Populated(path string) (bool, error) {
	dir, err := t.dir(path)
	if err != nil {
		return false, err
	}
	return populated(dir)
}

// populated implements Populated. The library reads this file only with its inotify
// watch.
func populated(dir string) (bool, error) {
	var buf [256]byte // two lines now; a later kernel may have more
	n, err := read(dir+"/"+fileEvents, buf[:])
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	processes, ok := lookup(buf[:n], "populated")
	if !ok {
		return false, fmt.Errorf("read %s/%s: no number for populated", dir, fileEvents)
	}
	return processes != 0, nil
}

// Process returns the ID of one process of the cgroup itself, not of those below it, in
// the caller's PID namespace. It returns 0 if the cgroup has none, or if the process is
// not in that namespace, and ErrNotFound without the cgroup. The process may have ended
// meanwhile. The library's Procs reads the state of each file of the cgroup and all of
// cgroup.procs; this reads one line.
func (t *Tree) Process(path string) (pid int, err error) {
	var buf [32]byte // the first line
	name, n, err := t.read(path, fileProcs, buf[:])
	if err != nil {
		return 0, err
	}
	line, _, whole := bytes.Cut(buf[:n], []byte{'\n'})
	if n == 0 {
		return 0, nil
	}
	pid, err = strconv.Atoi(string(line))
	if err != nil || !whole {
		return 0, fmt.Errorf("read %s: %q is not a process ID", name, line)
	}
	return pid, nil
}

// Attach moves a process with all its threads into an existing cgroup. PID 0 is the
// caller. It returns unix.ESRCH for a process that has ended, and ErrNotFound without
// the cgroup.
func (t *Tree) Attach(path string, pid int) error {
	dir, err := t.dir(path)
	if err != nil {
		return err
	}
	m, err := load(dir)
	if err == nil {
		err = m.AddProc(uint64(pid))
	}
	if err != nil {
		return fmt.Errorf("move process %d into cgroup %s: %w", pid, dir, writeError(dir, err))
	}
	return nil
}

// CPUs reads cpuset.cpus: the list of CPUs that the cgroup requests, "" if it has those
// of its parent. It returns ErrNotFound without the cgroup, and ErrController without
// the cpuset controller. The library writes this file, but does not read it.
func (t *Tree) CPUs(path string) (string, error) {
	var buf [4096]byte // a list of 1024 CPUs has less than 3000 bytes
	_, n, err := t.read(path, fileCPUs, buf[:])
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(buf[:n])), nil
}

// SetCPUs writes cpuset.cpus of the cgroup, and of its Payload. An empty list gives them
// the CPUs of the parent, for which the library's Update writes nothing. Errors are as
// with CPUs.
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

// Kill sends SIGKILL to all processes of the cgroup and of those below it at once. It
// does not wait for their end: a Delete right after it may return ErrBusy. A cgroup that
// does not exist is no error. It needs cgroup.kill, so Linux 5.14: without that file the
// library would freeze the cgroup, signal one process after another and wait for those
// that are children of the caller.
func (t *Tree) Kill(path string) error {
	dir, m, err := t.below(path, "kill")
	if err != nil {
		return err
	}
	if isMissing(filepath.Join(dir, fileKill)) {
		if !isDir(dir) {
			return nil
		}
		return fmt.Errorf("kill cgroup %s: it has no %s, which needs Linux 5.14: %w", dir, fileKill, fs.ErrNotExist)
	}
	if err := m.Kill(); err != nil && isDir(dir) {
		return fmt.Errorf("kill cgroup %s: %w", dir, err)
	}
	return nil
}

// Delete removes the cgroup and all below it, the leaves first. A cgroup that does not
// exist is no error. It kills nothing: where processes are left, it removes what it can
// and returns ErrBusy. The root cannot be deleted.
func (t *Tree) Delete(path string) error {
	dir, _, err := t.below(path, "delete")
	if err != nil {
		return err
	}
	return remove(dir)
}

// remove calls the library for one cgroup without processes and without children at a
// time. With processes it would remove nothing at all, with one that is just ending it
// would try again for 150 ms and return EPERM, and with children it would try to unlink
// each file of them.
func remove(dir string) error {
	names, err := children(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("delete cgroup %s: %w", dir, err)
	}
	var errs []error
	for _, name := range names {
		errs = append(errs, remove(filepath.Join(dir, name)))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	busy, err := populated(dir)
	if err == nil && !busy {
		if err = removeEmpty(dir); err != nil { // a process may have been started meanwhile
			busy, _ = populated(dir)
		}
	}
	if busy {
		err = ErrBusy
	}
	if err != nil && isDir(dir) { // others may have removed it
		return fmt.Errorf("delete cgroup %s: %w", dir, err)
	}
	return nil
}

// removeEmpty removes one cgroup, which may be removed by others meanwhile.
func removeEmpty(dir string) error {
	m, err := load(dir)
	if err != nil {
		return err
	}
	err = m.Delete()
	if errors.Is(err, unix.ENODEV) {
		// Another process is removing it. rmdir(2) waits until that is done.
		err = unix.Rmdir(dir)
	}
	if err != nil && isDir(dir) {
		return err
	}
	return nil
}

// Own returns the cgroup of this process, such as /system.slice/x.service. It is / in
// the root cgroup and in the root of a cgroup namespace. The library's PidGroupPath does
// not fit, which fails in a /proc of another PID namespace.
func Own() (path string, ok bool) {
	data, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", false
	}
	return ParseOwn(string(data))
}

// ParseOwn returns the cgroup v2 path of /proc/PID/cgroup, which is in the line
// 0::/path. Lines of mounted cgroup v1 hierarchies precede it (cgroups(7)).
func ParseOwn(text string) (path string, ok bool) {
	for line := range strings.Lines(text) {
		if path, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			return path, true
		}
	}
	return "", false
}
