package cgroups

import (
	"bytes"
	"errors"
	"fmt"
)

// Populated says whether a group, or one below it, has processes, by its
// cgroup.events. A group that does not exist has none.
func (t *Tree) Populated(path string) (bool, error) {
	dir, err := t.dir(path)
	if err != nil {
		return false, err
	}
	var buf [256]byte // two lines now; a kernel may have more to tell
	n, err := read(dir+"/"+fileEvents, buf[:])
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for line := range bytes.Lines(buf[:n]) {
		if value, ok := bytes.CutPrefix(line, []byte("populated ")); ok {
			return !bytes.HasPrefix(value, []byte("0")), nil
		}
	}
	return false, fmt.Errorf("read %s/%s: it does not tell whether there are processes", dir, fileEvents)
}
