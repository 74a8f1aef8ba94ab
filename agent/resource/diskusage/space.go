package diskusage

import (
	"fmt"
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// Space is what a file system has and has left, for others than root. Device
// is the same for two paths on one file system.
type Space struct {
	Device              uint64
	Available, Capacity int64 // bytes
	// Inodes and InodesFree are 0 where there is no limit on them.
	Inodes, InodesFree int64
}

// SpaceAt asks the kernel about the file system that a path is on: two system
// calls, and no walk. The figures are those of Meter.Node. It blocks where the
// file system does.
func SpaceAt(path string) (Space, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return Space{}, fmt.Errorf("find the file system of %s: %w", path, err)
	}
	var fs unix.Statfs_t
	if err := statfs(path, &fs); err != nil {
		return Space{}, fmt.Errorf("measure the file system of %s: %w", path, err)
	}
	f := figuresOf(&fs, time.Time{})
	s := Space{
		Device:    uint64(st.Dev), //nolint:unconvert // 32 bits wide on some architectures
		Available: signed(f.available), Capacity: signed(f.capacity),
	}
	if f.hasInodes {
		s.Inodes, s.InodesFree = signed(f.inodes), signed(f.inodesFree)
	}
	return s, nil
}

func signed(n uint64) int64 { return int64(min(n, math.MaxInt64)) }
