package diskusage

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

const (
	// openLevels is how many levels of a tree, from its root directory on, stay open
	// during a step. Of the levels below them only one is open at a time, and the
	// walk returns to its parent through "..".
	openLevels = 64
	// maxLevels limits the memory of a walk: 24 bytes for each level.
	maxLevels = 1 << 16
	// listBuffer is the size in bytes of the buffer for getdents64, one for each open
	// directory. It has room for seven entries with the longest names.
	listBuffer = 2048
	// checkEvery is the number of entries between two calls of stop.
	checkEvery = 32
)

// ErrDeep means that a tree has more levels than are walked. Deeper files are not
// counted.
var ErrDeep = fmt.Errorf("deeper than %d directories", maxLevels)

// Usage is what a tree uses of its file system: the bytes of its allocated blocks,
// and its number of files and directories.
type Usage struct {
	Bytes, Inodes uint64
}

// Walk is the state of the walk of one tree. The zero Walk has not started. Between
// two steps it keeps the names of the upper directories above the current position,
// whatever the tree holds. It keeps no files open between steps, except one directory
// if it stopped below openLevels; Drop closes that.
//
// Files that are moved within the tree meanwhile may be counted twice or not at all.
// Removed files are not counted.
type Walk struct {
	// HasMounts is for a tree with mounts below it. A stat of a mount point would query
	// the mounted file system, which may hang. It takes three system calls instead of
	// one for each entry to avoid that.
	HasMounts bool
	// Visit is called, if it is set, for each file that is not a directory, with the
	// open directory and the name in it. It is called for each directory after the
	// entries of that, with the open directory and an empty name. It must not keep
	// dir and st.
	Visit func(dir int, name string, st *unix.Statx_t)

	levels  []level    // the upper ones, between two steps
	below   []position // the levels between the upper ones and the deepest
	deepest position   // the deepest level, between two steps, if held is set
	held    *os.File
	// lost means that the path to the last level of below must be found again; found
	// is the number of levels found so far. The deepest level is the last of them.
	lost  bool
	found int

	begun   bool
	done    bool
	mount   uint64 // the ID of the tree's mount; 0 means unknown
	entries int
	err     error

	// Sums in fractions of a block and of an inode, since each link of a file counts
	// its fraction: all links are in the tree, since the tree is mounted separately.
	// So no growing set of seen inodes is needed.
	blocks, inodes uint64
}

const (
	blockParts = 20 // bits
	inodeParts = 32
)

// level is a directory on the path to the current position.
type level struct {
	position
	name []byte // in the level above, with a zero byte; nil for the tree's root
}

// position is the position in a directory, from which to continue, and to find the
// entered subdirectory again.
type position struct {
	ino      uint64
	entryPos int64 // position of the last entry
	nextPos  int64 // position after it
}

// Usage returns the usage counted so far.
func (w *Walk) Usage() Usage {
	return Usage{
		Bytes:  (w.blocks + 1<<(blockParts-1)) >> blockParts * 512,
		Inodes: (w.inodes + 1<<(inodeParts-1)) >> inodeParts,
	}
}

// Entries returns the number of directory entries read.
func (w *Walk) Entries() int { return w.entries }

// Err returns the first error, which may wrap ErrDeep. The walk continues after an error.
func (w *Walk) Err() error { return w.err }

// Drop closes the files of an unfinished Walk. No step may follow.
func (w *Walk) Drop() {
	if w.held != nil {
		_ = w.held.Close()
		w.held = nil
	}
	w.below, w.lost = nil, false
}

func (w *Walk) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

// count adds a file with the result of statx.
func (w *Walk) count(st *unix.Statx_t) {
	links := uint64(1)
	if !isDir(st) {
		links = uint64(max(st.Nlink, 1))
	}
	w.blocks += st.Blocks << blockParts / links
	w.inodes += 1 << inodeParts / links
}

func isDir(st *unix.Statx_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFDIR }

// onOtherMount reports whether a file belongs to another mount.
func (w *Walk) onOtherMount(st *unix.Statx_t) bool {
	return w.mount != 0 && st.Mask&unix.STATX_MNT_ID != 0 && st.Mnt_id != w.mount
}

// Walker performs steps of walks, one after the other, and holds their buffers. It is
// not safe for concurrent use. The zero Walker is ready.
type Walker struct {
	st   unix.Statx_t
	open []openLevel
	free [][]byte
}

// openLevel is a directory that is being read.
type openLevel struct {
	position
	fd   int
	buf  []byte // the whole buffer
	rest []byte // the unread part
	name []byte // of the last entry
}

// Step continues the walk of the tree with the open root directory dir, for that many
// entries. It returns the number of entries, which may be a few more for finding the
// current position again, and whether the walk is done. It calls stop every few
// entries and ends when stop returns true. It blocks on the disk. For a walk that is
// done it does nothing.
func (k *Walker) Step(w *Walk, dir, entries int, stop func() bool) (took int, done bool) {
	if w.done {
		return 0, true
	}
	defer k.close()
	before := w.entries
	k.begin(w, dir)
	for len(k.open) > 0 {
		// At least one, so that each step proceeds whatever finding the position
		// costs.
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
	w.Drop()
	return w.entries - before, true
}

// begin opens the tree's root directory and those on the path to the current
// position, as far as they still exist. If it opens none, the walk is done.
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
	switch {
	case !k.reopen(w):
		w.Drop()
	case w.held != nil:
		k.resume(w)
	}
}

// reopen opens the upper directories, and reports whether all of them still exist.
func (k *Walker) reopen(w *Walk) bool {
	levels := w.levels
	w.levels = w.levels[:0]
	for i := range levels {
		l := &levels[i]
		if i > 0 {
			w.entries++ // it costs as much as an entry
			k.open[i-1].name = l.name
			fd, err := openat2(k.open[i-1].fd, &l.name[0], unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, beneath)
			if err == nil {
				err = k.push(fd)
			}
			if err != nil {
				return false // gone: continue in the level above, after it
			}
		}
		top := k.top()
		if top.ino != l.ino {
			k.pop()
			return false
		}
		if _, err := unix.Seek(top.fd, l.nextPos, io.SeekStart); err != nil {
			w.fail(err)
			k.pop()
			return false
		}
		top.position = l.position
	}
	return true
}

// resume continues with the deepest directory, which stayed open.
func (k *Walker) resume(w *Walk) {
	fd, err := unix.FcntlInt(w.held.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	_ = w.held.Close()
	w.held = nil
	if err == nil {
		err = k.push(fd)
	}
	if err != nil {
		w.fail(err)
		w.Drop()
		return
	}
	k.top().position = w.deepest
	if !w.lost {
		k.seek(w)
	}
}

// next processes the next entry. It returns false if the bounds must be checked
// before it is called again.
func (k *Walker) next(w *Walk) bool {
	if w.lost {
		k.findLevel(w)
		return true
	}
	top := k.top()
	e, rest, ok := nextEntry(top.rest)
	if !ok {
		n, err := unix.Getdents(top.fd, top.buf)
		if errors.Is(err, unix.EINTR) {
			return true
		}
		if err != nil && !isGone(err) {
			w.fail(fmt.Errorf("read directory: %w", err))
		}
		if err != nil || n <= 0 {
			k.leave(w)
			return len(k.open) > 0
		}
		top.rest = top.buf[:n]
		if e, rest, ok = nextEntry(top.rest); !ok {
			k.leave(w)
			return len(k.open) > 0
		}
	}
	top.rest, top.name, top.entryPos, top.nextPos = rest, e.name, top.nextPos, e.at
	if e.isDots() {
		return true
	}
	w.entries++
	switch err := k.statEntry(w, top.fd, e.name); {
	case err == nil:
		if w.onOtherMount(&k.st) {
			return true
		}
		w.count(&k.st)
		switch {
		case isDir(&k.st):
			k.enter(w, top.fd, e.name)
		case w.Visit != nil:
			w.Visit(top.fd, string(e.name[:len(e.name)-1]), &k.st)
		}
	case !isGone(err):
		w.fail(fmt.Errorf("%q: %w", e.name[:len(e.name)-1], err))
	}
	return true
}

// statEntry fills st with the stat of a name.
func (k *Walker) statEntry(w *Walk, dir int, name []byte) error {
	if !w.HasMounts {
		return statx(dir, &name[0], &k.st)
	}
	fd, err := openat2(dir, &name[0], unix.O_PATH|unix.O_NOFOLLOW, beneath)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return statx(fd, &emptyName[0], &k.st)
}

// enter descends into a directory, unless the tree is too deep.
func (k *Walker) enter(w *Walk, dir int, name []byte) {
	if len(k.open)+len(w.below) > maxLevels {
		w.fail(ErrDeep)
		return
	}
	if err := k.descend(w, dir, name); err != nil && !isGone(err) {
		w.fail(fmt.Errorf("%q: %w", name[:len(name)-1], err))
	}
}

// descend opens a subdirectory of the deepest directory. Below openLevels it replaces
// that.
func (k *Walker) descend(w *Walk, dir int, name []byte) error {
	fd, err := openat2(dir, &name[0], unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, beneath)
	if err != nil {
		return err
	}
	if err := k.stat(fd); err != nil {
		return err
	}
	if len(k.open) > openLevels {
		w.below = append(w.below, k.top().position)
		k.pop()
	}
	k.add(fd)
	return nil
}

// leave returns to the directory above the deepest one.
func (k *Walker) leave(w *Walk) {
	if w.Visit != nil {
		if err := statx(k.top().fd, &emptyName[0], &k.st); err != nil {
			w.fail(err)
		} else {
			w.Visit(k.top().fd, "", &k.st)
		}
	}
	last := len(w.below) - 1
	if last < 0 {
		k.pop() // its parent is open
		return
	}
	w.entries++ // it costs as much as an entry
	fd, err := openat2(k.top().fd, &dotdot[0], unix.O_RDONLY|unix.O_DIRECTORY, sameMount)
	k.pop()
	if err == nil && k.stat(fd) == nil {
		if k.st.Ino == w.below[last].ino {
			k.add(fd)
			k.top().position = w.below[last]
			w.below = w.below[:last]
			k.seek(w)
			return
		}
		_ = unix.Close(fd)
	}
	// It was moved or removed meanwhile. Find the path again: otherwise a container
	// that moves directories continually would hide their siblings.
	w.lost, w.found = true, 0
}

// findLevel opens one more level of the path to the last level of below. If the path has
// changed, the walk continues after that place.
func (k *Walker) findLevel(w *Walk) {
	w.entries++ // it costs as much as an entry
	if k.reenter(w) {
		if w.found++; w.found < len(w.below) {
			return
		}
	}
	// The deepest open directory is the last one that was found, if any.
	w.below = w.below[:max(w.found-1, 0)]
	w.lost = false
	k.seek(w)
}

// reenter opens the directory that was entered from the deepest open one, and
// reports whether it still exists.
func (k *Walker) reenter(w *Walk) bool {
	top, want := k.top(), w.below[w.found]
	if _, err := unix.Seek(top.fd, top.entryPos, io.SeekStart); err != nil {
		return false
	}
	n, err := unix.Getdents(top.fd, top.buf)
	if err != nil || n <= 0 {
		return false
	}
	// If it stays open, it is read later from after the entry.
	top.rest = nil
	if _, err := unix.Seek(top.fd, top.nextPos, io.SeekStart); err != nil {
		return false
	}
	e, _, ok := nextEntry(top.buf[:n])
	if !ok || e.isDots() {
		return false
	}
	fd, err := openat2(top.fd, &e.name[0], unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, beneath)
	if err != nil || k.stat(fd) != nil {
		return false
	}
	if k.st.Ino != want.ino {
		_ = unix.Close(fd)
		return false
	}
	if len(k.open) > openLevels {
		k.pop()
	}
	k.add(fd)
	k.top().position = want
	return true
}

// seek continues with the deepest open directory after its last entry.
func (k *Walker) seek(w *Walk) {
	top := k.top()
	top.rest = nil
	if _, err := unix.Seek(top.fd, top.nextPos, io.SeekStart); err != nil {
		w.fail(err)
		k.leave(w)
	}
}

// push adds an open directory, and fills st.
func (k *Walker) push(fd int) error {
	if err := k.stat(fd); err != nil {
		return err
	}
	k.add(fd)
	return nil
}

// stat fills st with the stat of an open file. It closes the file on error.
func (k *Walker) stat(fd int) error {
	err := statx(fd, &emptyName[0], &k.st)
	if err != nil {
		_ = unix.Close(fd)
	}
	return err
}

// add adds the open directory whose stat is in st.
func (k *Walker) add(fd int) {
	var buf []byte
	if n := len(k.free); n > 0 {
		buf, k.free = k.free[n-1], k.free[:n-1]
	} else {
		buf = make([]byte, listBuffer)
	}
	k.open = append(k.open, openLevel{position: position{ino: k.st.Ino}, fd: fd, buf: buf})
}

func (k *Walker) top() *openLevel { return &k.open[len(k.open)-1] }

func (k *Walker) pop() {
	_ = unix.Close(k.top().fd)
	k.release()
}

// release removes the deepest open directory without closing it.
func (k *Walker) release() {
	k.free = append(k.free, k.top().buf)
	k.open = k.open[:len(k.open)-1]
}

// suspend saves the current position.
func (k *Walker) suspend(w *Walk) {
	if len(k.open) > openLevels {
		w.deepest, w.held = k.top().position, os.NewFile(uintptr(k.top().fd), "directory of a walk")
		k.release()
	}
	w.levels = w.levels[:0]
	var name []byte
	for i := range k.open {
		l := &k.open[i]
		w.levels = append(w.levels, level{name: name, position: l.position})
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
