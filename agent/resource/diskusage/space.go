package diskusage

import (
	"fmt"
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// Space is the capacity of a file system and what is available to users other than
// root. Device is equal for two paths on one file system.
type Space struct {
	Device              uint64
	Available, Capacity int64 // bytes
	// Inodes and InodesFree are 0 if the number of inodes is not limited.
	Inodes, InodesFree int64
}

// SpaceAt returns the space of the file system that a path is on. It makes two system
// calls. The values are those of Meter.Node. It blocks as long as
// the file system does not respond.
func SpaceAt(path string) (Space, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return Space{}, fmt.Errorf("find file system of %s: %w", path, err)
	}
	var fs unix.Statfs_t
	if err := statfs(path, &fs); err != nil {
		return Space{}, fmt.Errorf("measure file system of %s: %w", path, err)
	}
	f := fsInfoOf(&fs, time.Time{})
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
