package diskusage

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

const (
	// openLevels is how many levels of a tree, from its own directory on, stay
	// open during a step. Of all levels below them one is open at a time, and
	// the way back up leads by "..".
	openLevels = 64
	// maxLevels bounds the memory of a walk: 24 bytes for each level.
	maxLevels = 1 << 16
	// listBuffer holds what is read of a directory at a time, in bytes; there
	// is one for each open directory. It has room for seven of the longest
	// names.
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
// beginning. Between two steps it remembers the names of the upper directories
// above the place where it stopped, whatever the tree holds. Nothing is open
// meanwhile, except for one directory where it stopped below openLevels; Drop
// closes that.
//
// What moves about within the tree meanwhile may be counted twice or not at
// all; what goes away is left out.
type Walk struct {
	// Careful is for a tree in which something is mounted. Looking at the
	// place of a mount would ask the file system that is mounted, which may
	// hang; three system calls for each entry in place of one avoid it.
	Careful bool

	levels  []level  // the upper ones, between two steps
	below   []passed // the levels between the upper ones and the deepest
	deepest passed   // the deepest level, between two steps, if held is set
	held    *os.File
	// The way to the last level of below is lost. So many of them are found
	// again; the deepest level is the last of these.
	lost  bool
	found int

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
	passed
	name []byte // in the level above, with a zero byte; none for the tree's own
}

// passed is what it takes to go on with a directory, and to find the one that
// was entered.
type passed struct {
	ino  uint64
	from int64 // before the last entry
	at   int64 // behind it
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

// Drop closes what a Walk that is not done has open. There is no step behind it.
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
	passed
	fd   int
	buf  []byte // all of it
	rest []byte // what is not looked at yet
	name []byte // of the last entry
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
	w.Drop()
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
	switch {
	case !k.reopen(w):
		w.Drop()
	case w.held != nil:
		k.resume(w)
	}
}

// reopen opens the upper directories, and reports whether all of them are still
// there.
func (k *Walker) reopen(w *Walk) bool {
	levels := w.levels
	w.levels = w.levels[:0]
	for i := range levels {
		l := &levels[i]
		if i > 0 {
			w.entries++ // it costs as much as looking at one
			k.open[i-1].name = l.name
			fd, err := openat2(k.open[i-1].fd, &l.name[0], unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, beneath)
			if err == nil {
				err = k.push(fd)
			}
			if err != nil {
				return false // gone: the level above goes on behind it
			}
		}
		top := k.top()
		if top.ino != l.ino {
			k.pop()
			return false
		}
		if _, err := unix.Seek(top.fd, l.at, io.SeekStart); err != nil {
			w.fail(err)
			k.pop()
			return false
		}
		top.passed = l.passed
	}
	return true
}

// resume goes on with the deepest directory, which stayed open.
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
	k.top().passed = w.deepest
	if !w.lost {
		k.seek(w)
	}
}

// next looks at the next entry, and says whether there is more to be done
// before the next look at the bounds.
func (k *Walker) next(w *Walk) bool {
	if w.lost {
		k.find(w)
		return true
	}
	top := k.top()
	e, rest, ok := nextEntry(top.rest)
	if !ok {
		n, err := unix.Getdents(top.fd, top.buf)
		if err != nil && !gone(err) {
			w.fail(err)
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
	top.rest, top.name, top.from, top.at = rest, e.name, top.at, e.at
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
	if len(k.open)+len(w.below) > maxLevels {
		w.fail(ErrDeep)
		return
	}
	if err := k.descend(w, dir, name); err != nil && !gone(err) {
		w.fail(fmt.Errorf("%q: %w", name[:len(name)-1], err))
	}
}

// descend opens a directory that lies in the deepest one. Below openLevels it
// takes the place of that.
func (k *Walker) descend(w *Walk, dir int, name []byte) error {
	fd, err := openat2(dir, &name[0], unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, beneath)
	if err != nil {
		return err
	}
	if err := k.stat(fd); err != nil {
		return err
	}
	if len(k.open) > openLevels {
		w.below = append(w.below, k.top().passed)
		k.pop()
	}
	k.add(fd)
	return nil
}

// leave goes back to the directory above the deepest one.
func (k *Walker) leave(w *Walk) {
	last := len(w.below) - 1
	if last < 0 {
		k.pop() // what is above it is open
		return
	}
	w.entries++ // it costs as much as looking at one
	fd, err := openat2(k.top().fd, &above[0], unix.O_RDONLY|unix.O_DIRECTORY, sameMount)
	k.pop()
	if err == nil && k.stat(fd) == nil {
		if k.st.Ino == w.below[last].ino {
			k.add(fd)
			k.top().passed = w.below[last]
			w.below = w.below[:last]
			k.seek(w)
			return
		}
		_ = unix.Close(fd)
	}
	// It was moved or removed meanwhile. A container that moves directories all
	// the time would hide what lies beside them.
	w.lost, w.found = true, 0
}

// find opens one more level of the way to the last level of below. Where the
// way has changed, the walk goes on behind that place.
func (k *Walker) find(w *Walk) {
	w.entries++ // it costs as much as looking at one
	if k.enterAgain(w) {
		if w.found++; w.found < len(w.below) {
			return
		}
	}
	// The deepest open directory is the last one that was found, if any.
	w.below = w.below[:max(w.found-1, 0)]
	w.lost = false
	k.seek(w)
}

// enterAgain opens the directory that was entered from the deepest open one,
// and reports whether it is still there.
func (k *Walker) enterAgain(w *Walk) bool {
	top, want := k.top(), w.below[w.found]
	if _, err := unix.Seek(top.fd, top.from, io.SeekStart); err != nil {
		return false
	}
	n, err := unix.Getdents(top.fd, top.buf)
	if err != nil || n <= 0 {
		return false
	}
	// One that stays open is read on behind the entry later.
	top.rest = nil
	if _, err := unix.Seek(top.fd, top.at, io.SeekStart); err != nil {
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
	k.top().passed = want
	return true
}

// seek goes on with the deepest open directory behind its last entry.
func (k *Walker) seek(w *Walk) {
	top := k.top()
	top.rest = nil
	if _, err := unix.Seek(top.fd, top.at, io.SeekStart); err != nil {
		w.fail(err)
		k.leave(w)
	}
}

// push takes an open directory over, and fills st.
func (k *Walker) push(fd int) error {
	if err := k.stat(fd); err != nil {
		return err
	}
	k.add(fd)
	return nil
}

// stat fills st with what is open, and closes it where that fails.
func (k *Walker) stat(fd int) error {
	err := statx(fd, &nothing[0], &k.st)
	if err != nil {
		_ = unix.Close(fd)
	}
	return err
}

// add takes over the open directory that st is of.
func (k *Walker) add(fd int) {
	var buf []byte
	if n := len(k.free); n > 0 {
		buf, k.free = k.free[n-1], k.free[:n-1]
	} else {
		buf = make([]byte, listBuffer)
	}
	k.open = append(k.open, openLevel{passed: passed{ino: k.st.Ino}, fd: fd, buf: buf})
}

func (k *Walker) top() *openLevel { return &k.open[len(k.open)-1] }

func (k *Walker) pop() {
	_ = unix.Close(k.top().fd)
	k.forget()
}

// forget takes the deepest open directory off without closing it.
func (k *Walker) forget() {
	k.free = append(k.free, k.top().buf)
	k.open = k.open[:len(k.open)-1]
}

// suspend notes where the walk is.
func (k *Walker) suspend(w *Walk) {
	if len(k.open) > openLevels {
		w.deepest, w.held = k.top().passed, os.NewFile(uintptr(k.top().fd), "directory of a walk")
		k.forget()
	}
	w.levels = w.levels[:0]
	var name []byte
	for i := range k.open {
		l := &k.open[i]
		w.levels = append(w.levels, level{name: name, passed: l.passed})
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
