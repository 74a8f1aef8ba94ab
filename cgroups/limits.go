package cgroups

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Limits are what a group's own files set it. A limit that the kernel shows
// as "max" is NoLimit; what the group has no file for is not known.
type Limits struct {
	// CPUWeight is 1 to 10000.
	CPUWeight Figure
	// CPUQuota is microseconds in each CPUPeriod, which is microseconds, too,
	// and known where the quota is.
	CPUQuota  Figure
	CPUPeriod uint64
	// MemoryMax is bytes.
	MemoryMax Figure
}

// Limits reads cpu.weight, cpu.max and memory.max. A group that does not exist
// gives ErrNotFound. It blocks only on the kernel.
func (t *Tree) Limits(path string) (Limits, error) {
	dir, err := t.dir(path)
	if err != nil {
		return Limits{}, err
	}
	var l Limits
	for _, file := range []struct {
		name  string
		parse func(data []byte) bool
	}{
		{fileCPUWeight, func(d []byte) bool { return parseSingle(d, &l.CPUWeight) }},
		{fileCPUMax, l.parseCPUMax},
		{fileMemoryMax, func(d []byte) bool { return parseLimit(d, &l.MemoryMax) }},
	} {
		var buf [64]byte
		n, err := read(dir+"/"+file.name, buf[:])
		switch {
		case errors.Is(err, ErrController):
		case err != nil:
			return Limits{}, err
		case !file.parse(buf[:n]):
			return Limits{}, fmt.Errorf("read %s/%s: %q cannot be understood", dir, file.name, buf[:n])
		}
	}
	return l, nil
}

// parseCPUMax reads "QUOTA PERIOD", of which the quota may be "max".
func (l *Limits) parseCPUMax(data []byte) bool {
	quota, period := cut(bytes.TrimSuffix(data, []byte{'\n'}), ' ')
	var q Figure
	n, ok := number(period)
	if !ok || n == 0 || !parseLimit(quota, &q) {
		return false
	}
	l.CPUQuota, l.CPUPeriod = q, n
	return true
}

// Set writes limits into a group that exists; unlike Ensure it makes none. A
// group that does not exist gives ErrNotFound, one without the controller
// ErrController. After an error some of the limits may be written.
func (t *Tree) Set(path string, r Resources) error {
	dir, err := t.dir(path)
	if err != nil {
		return err
	}
	for _, s := range r.settings() {
		err := s.write(dir)
		switch {
		case err == nil:
			continue
		case errors.Is(err, fs.ErrNotExist):
			if err = ErrController; !isDir(dir) {
				err = ErrNotFound
			}
		case errors.Is(err, unix.ENODEV): // deleted between open and write
			err = ErrNotFound
		}
		return fmt.Errorf("set %s to %q in cgroup %s: %w", s.file, s.value, dir, err)
	}
	return nil
}

func isDir(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.IsDir()
}
