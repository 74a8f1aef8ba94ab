package cgroups

import (
	"bytes"
	"fmt"
	"strconv"
)

// Process is one process of a group itself, not of those below it: its ID in
// the caller's PID namespace, or 0 where the group has none, or none that the
// caller's namespace knows. A group that does not exist gives ErrNotFound. The
// process may have ended by the time that it is used.
func (t *Tree) Process(path string) (pid int, err error) {
	dir, err := t.dir(path)
	if err != nil {
		return 0, err
	}
	var buf [32]byte // one line; the rest is not wanted
	n, err := read(dir+"/"+fileProcs, buf[:])
	if err != nil {
		return 0, err
	}
	line, _, whole := bytes.Cut(buf[:n], []byte{'\n'})
	if n == 0 {
		return 0, nil
	}
	pid, err = strconv.Atoi(string(line))
	if err != nil || !whole {
		return 0, fmt.Errorf("read %s/%s: %q is no process", dir, fileProcs, line)
	}
	return pid, nil
}
