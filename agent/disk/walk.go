package disk

import (
	"fmt"

	"golang.org/x/sys/unix"
)

const (
	// maxLevels bounds the directories that are open at once during a walk.
	maxLevels = 512
	// listBuffer holds what is read of a directory at a time, in bytes; there
	// is one for each level. It has room for seven of the longest names.
	listBuffer = 2048
	// checkEvery is how many entries are looked at between two calls of stop.
	checkEvery = 32
)

// ErrDeep says that a tree has more levels than are walked; what lies deeper
// is not counted.
var ErrDeep = fmt.Errorf("it is deeper than %d directories", maxLevels)

// Usage is what a tree takes on its file system: the bytes of the blocks that
// are allocated to it, and its files and directories.
type Usage struct {
	Bytes, Inodes uint64
}

// Walk is how far the counting of one tree has come. The zero Walk is at its
// beginning. Between two steps nothing is open; it remembers the names of the
// directories above the place where it stopped, whatever the tree holds.
//
// What moves about within the tree meanwhile may be counted twice or not at
// all; what goes away is left out.
type Walk struct {
	// Careful is for a tree in which something is mounted. Looking at the
	// place of a mount would ask the file system that is mounted, which may
	// hang; three system calls for each entry in place of one avoid it.
	Careful bool

	levels  []level
	begun   bool
	done    bool
	mount   uint64 // the ID of the tree's mount; 0 is not known
	entries int
	err     error

	// Sums in parts of a block and of an inode, since each link of a file
	// counts its part of it: all are in the tree, which is mounted by itself,
	// and there is no memory of those seen that could grow.
	blocks, inodes uint64
}

const (
	blockParts = 20 // bits
	inodeParts = 32
)

// level is a directory on the way to where a walk stopped.
type level struct {
	name []byte // in the level above, with a zero byte; none for the tree's own
	ino  uint64
	at   int64
}

// Usage is what was counted until now.
func (w *Walk) Usage() Usage {
	return Usage{
		Bytes:  (w.blocks + 1<<(blockParts-1)) >> blockParts * 512,
		Inodes: (w.inodes + 1<<(inodeParts-1)) >> inodeParts,
	}
}

// Entries is how many directory entries were looked at.
func (w *Walk) Entries() int { return w.entries }

// Err is the first error of what could not be counted, or ErrDeep. It hides
// nothing else: all the rest is counted.
func (w *Walk) Err() error { return w.err }

func (w *Walk) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

// count adds what the kernel said of a file.
func (w *Walk) count(st *unix.Statx_t) {
	links := uint64(1)
	if !isDir(st) {
		links = uint64(max(st.Nlink, 1))
	}
	w.blocks += st.Blocks << blockParts / links
	w.inodes += 1 << inodeParts / links
}

func isDir(st *unix.Statx_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFDIR }

// elsewhere says whether what was looked at belongs to another mount.
func (w *Walk) elsewhere(st *unix.Statx_t) bool {
	return w.mount != 0 && st.Mask&unix.STATX_MNT_ID != 0 && st.Mnt_id != w.mount
}

// Walker takes steps of walks, one after the other, and holds what they need
// meanwhile. It is for one goroutine; the zero Walker is ready.
type Walker struct {
	st   unix.Statx_t
	open []openLevel
	free [][]byte
}

// openLevel is a directory that is being read.
type openLevel struct {
	fd   int
	ino  uint64
	buf  []byte // all of it
	rest []byte // what is not looked at yet
	name []byte // of the last entry
	at   int64  // behind it
}

// Step goes on with a walk of the tree whose directory is open, for so many
// entries, and says how many it took and whether the walk is done. It may take
// a few more, for the way to where the walk stopped. stop is called every few
// entries, and ends the step by answering true. It blocks
// on the disk. Of a walk that is done it takes none.
func (k *Walker) Step(w *Walk, dir, entries int, stop func() bool) (took int, done bool) {
	if w.done {
		return 0, true
	}
	defer k.close()
	before := w.entries
	k.begin(w, dir)
	for len(k.open) > 0 {
		// At least one, so that each step gets on whatever the way there takes.
		for range max(min(checkEvery, entries-took), 1) {
			if !k.next(w) {
				break
			}
		}
		if took = w.entries - before; len(k.open) > 0 && (took >= entries || stop()) {
			k.suspend(w)
			return took, false
		}
	}
	w.levels, w.done = nil, true
	return w.entries - before, true
}

// begin opens the tree's directory and those that lead to where the walk
// stopped, as far as they are still there. Without any the walk is over.
func (k *Walker) begin(w *Walk, dir int) {
	fd, err := openat2(dir, &dot[0], unix.O_RDONLY|unix.O_DIRECTORY, beneath)
	if err == nil {
		err = k.push(fd)
	}
	if err != nil {
		w.fail(err)
		return
	}
	if !w.begun {
		w.begun = true
		if k.st.Mask&unix.STATX_MNT_ID != 0 {
			w.mount = k.st.Mnt_id
		}
		w.count(&k.st)
		return
	}
	for i := range w.levels {
		l := &w.levels[i]
		if i > 0 {
			w.entries++ // it costs as much as looking at one
			k.open[i-1].name = l.name
			fd, err := openat2(k.open[i-1].fd, &l.name[0], unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, beneath)
			if err == nil {
				err = k.push(fd)
			}
			if err != nil {
				break // gone: the level above goes on behind it
			}
		}
		top := &k.open[i]
		if top.ino != l.ino {
			k.pop()
			break
		}
		if _, err := unix.Seek(top.fd, l.at, unix.SEEK_SET); err != nil {
			w.fail(err)
			k.pop()
			break
		}
		top.at = l.at
	}
	w.levels = w.levels[:0]
}

// next looks at the next entry, and says whether there is more to be done
// before the next look at the bounds.
func (k *Walker) next(w *Walk) bool {
	top := &k.open[len(k.open)-1]
	e, rest, ok := nextEntry(top.rest)
	if !ok {
		n, err := unix.Getdents(top.fd, top.buf)
		if err != nil && !gone(err) {
			w.fail(err)
		}
		if err != nil || n <= 0 {
			k.pop()
			return len(k.open) > 0
		}
		top.rest = top.buf[:n]
		if e, rest, ok = nextEntry(top.rest); !ok {
			k.pop()
			return len(k.open) > 0
		}
	}
	top.rest, top.name, top.at = rest, e.name, e.at
	if e.isDots() {
		return true
	}
	w.entries++
	switch err := k.look(w, top.fd, e.name); {
	case err == nil:
		if !w.elsewhere(&k.st) {
			w.count(&k.st)
			k.enter(w, top.fd, e.name)
		}
	case !gone(err):
		w.fail(fmt.Errorf("%q: %w", e.name[:len(e.name)-1], err))
	}
	return true
}

// look fills st with what lies at a name.
func (k *Walker) look(w *Walk, dir int, name []byte) error {
	if !w.Careful {
		return statx(dir, &name[0], &k.st)
	}
	fd, err := openat2(dir, &name[0], unix.O_PATH|unix.O_NOFOLLOW, beneath)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return statx(fd, &nothing[0], &k.st)
}

// enter goes into what lies at a name, if that is a directory.
func (k *Walker) enter(w *Walk, dir int, name []byte) {
	if !isDir(&k.st) {
		return
	}
	if len(k.open) > maxLevels {
		w.fail(ErrDeep)
		return
	}
	fd, err := openat2(dir, &name[0], unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, beneath)
	if err == nil {
		err = k.push(fd)
	}
	if err != nil && !gone(err) {
		w.fail(fmt.Errorf("%q: %w", name[:len(name)-1], err))
	}
}

// push takes an open directory over, and fills st.
func (k *Walker) push(fd int) error {
	if err := statx(fd, &nothing[0], &k.st); err != nil {
		_ = unix.Close(fd)
		return err
	}
	var buf []byte
	if n := len(k.free); n > 0 {
		buf, k.free = k.free[n-1], k.free[:n-1]
	} else {
		buf = make([]byte, listBuffer)
	}
	k.open = append(k.open, openLevel{fd: fd, ino: k.st.Ino, buf: buf})
	return nil
}

func (k *Walker) pop() {
	last := &k.open[len(k.open)-1]
	_ = unix.Close(last.fd)
	k.free = append(k.free, last.buf)
	k.open = k.open[:len(k.open)-1]
}

// suspend notes where the walk is.
func (k *Walker) suspend(w *Walk) {
	w.levels = w.levels[:0]
	var name []byte
	for i := range k.open {
		l := &k.open[i]
		w.levels = append(w.levels, level{name: name, ino: l.ino, at: l.at})
		if i+1 < len(k.open) {
			name = append([]byte(nil), l.name...)
		}
	}
}

func (k *Walker) close() {
	for len(k.open) > 0 {
		k.pop()
	}
}
