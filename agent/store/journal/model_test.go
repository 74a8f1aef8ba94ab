package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// sector is the unit that a disk writes atomically.
const sector = 512

var errPower = errors.New("no power")

// fault is the outcome of an operation that changes something.
type fault struct {
	err error
	// half has half of a write done before the error.
	half bool
	// done has the operation done before the error.
	done bool
	// cut has the operation done, and then the power is gone.
	cut bool
}

// model is a disk that loses what was not synced when its power is cut. It is
// harsher than the kernel: what a failed sync left is never tried again.
type model struct {
	names   map[string]*inode // as a process sees them
	durable map[string]*inode // as the disk has them for sure
	pending []naming          // since the last sync
	unknown []naming          // before a sync that failed

	// fault, if set, judges the operation of that number, from 0.
	fault func(number int, op string) fault
	ops   []string
	off   bool
	limit int64 // how many bytes there may be; 0 is no limit
	reads int
	// readErr, if set, is what becomes of a read.
	readErr error
	readOnly,
	closed bool
}

// naming is one change of the names.
type naming struct {
	gone, name string
	node       *inode
}

func (n naming) apply(names map[string]*inode) {
	if n.gone != "" {
		delete(names, n.gone)
	}
	if n.name != "" {
		names[n.name] = n.node
	}
}

// inode is a file's content.
type inode struct {
	now, disk []byte
	dirty     versions // since the last sync
	unknown   versions // before a sync that failed
}

// versions are the possible contents of the disk, by sector, and the possible
// sizes.
type versions struct {
	sectors map[int][][]byte
	sizes   []int
}

func newModel() *model {
	return &model{names: make(map[string]*inode), durable: make(map[string]*inode)}
}

// modelWith returns a disk on which a journal is synced.
func modelWith(data []byte) *model {
	m := newModel()
	node := &inode{now: slices.Clone(data), disk: slices.Clone(data)}
	m.names[fileName], m.durable[fileName] = node, node
	return m
}

// do runs an operation with the outcome of the fault.
func (m *model) do(op string, effect func(), half func()) error {
	if m.off {
		return errPower
	}
	if m.readOnly {
		return &fs.PathError{Op: op, Path: "model", Err: unix.EROFS}
	}
	var f fault
	if m.fault != nil {
		f = m.fault(len(m.ops), op)
	}
	m.ops = append(m.ops, op)
	switch {
	case f.cut:
		m.off = true
		effect()
		return errPower
	case f.half:
		half()
	case f.err == nil || f.done:
		effect()
	}
	if f.err != nil {
		return &fs.PathError{Op: op, Path: "model", Err: f.err}
	}
	return nil
}

func (m *model) open(name string, flag int) (file, int64, error) {
	if m.off {
		return nil, 0, errPower
	}
	node := m.names[name]
	if flag&os.O_CREATE == 0 {
		if node == nil {
			return nil, 0, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
		}
		if m.readOnly && flag&os.O_RDWR != 0 {
			return nil, 0, &fs.PathError{Op: "open", Path: name, Err: unix.EROFS}
		}
		return &handle{m, node}, int64(len(node.now)), nil
	}
	if node != nil {
		return nil, 0, &fs.PathError{Op: "open", Path: name, Err: fs.ErrExist}
	}
	node = &inode{}
	err := m.do("create", func() { m.name(naming{name: name, node: node}) }, nil)
	if err != nil {
		return nil, 0, err
	}
	return &handle{m, node}, 0, nil
}

func (m *model) name(n naming) {
	n.apply(m.names)
	m.pending = append(m.pending, n)
}

func (m *model) rename(from, to string) error {
	return m.do("rename", func() { m.name(naming{gone: from, name: to, node: m.names[from]}) }, nil)
}

func (m *model) remove(name string) error {
	if m.names[name] == nil && !m.off {
		return nil
	}
	return m.do("remove", func() { m.name(naming{gone: name}) }, nil)
}

func (m *model) sync() error {
	err := m.do("syncdir", func() {
		touched := make(map[string]bool)
		for _, n := range m.pending {
			n.apply(m.durable)
			touched[n.gone], touched[n.name] = true, true
		}
		m.unknown = slices.DeleteFunc(m.unknown, func(n naming) bool { return touched[n.name] || n.name == "" })
		m.pending = nil
	}, nil)
	if err != nil {
		m.unknown = append(m.unknown, m.pending...)
		m.pending = nil
	}
	return err
}

func (m *model) close() error {
	m.closed = true
	return nil
}

// handle is an open file.
type handle struct {
	m    *model
	node *inode
}

func (h *handle) ReadAt(b []byte, off int64) (int, error) {
	h.m.reads++
	if h.m.off {
		return 0, errPower
	}
	if h.m.readErr != nil {
		return 0, h.m.readErr
	}
	if off >= int64(len(h.node.now)) {
		return 0, io.EOF
	}
	n := copy(b, h.node.now[off:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (h *handle) WriteAt(b []byte, off int64) (int, error) {
	n := len(b)
	full := false
	if limit := h.m.limit; limit > 0 {
		used := int64(0)
		for _, node := range h.m.names {
			if node != h.node {
				used += int64(len(node.now))
			}
		}
		if free := max(limit-used-off, 0); free < int64(n) {
			n, full = int(free), true
		}
	}
	err := h.m.do("write",
		func() { h.node.write(b[:n], off) },
		func() { n /= 2; h.node.write(b[:n], off) })
	if err != nil {
		return 0, err
	}
	if full {
		return n, &fs.PathError{Op: "write", Path: "model", Err: unix.ENOSPC}
	}
	return n, nil
}

func (h *handle) Truncate(size int64) error {
	return h.m.do("truncate", func() {
		was := len(h.node.now)
		for was < int(size) {
			h.node.now = append(h.node.now, 0)
			was++
		}
		h.node.now = h.node.now[:size]
		h.node.dirty.sizes = append(h.node.dirty.sizes, int(size))
	}, nil)
}

func (h *handle) Sync() error     { return h.sync("sync") }
func (h *handle) Datasync() error { return h.sync("datasync") }

func (h *handle) sync(op string) error {
	n := h.node
	err := h.m.do(op, func() {
		size := len(n.now)
		if n.dirty.sizes == nil {
			size = len(n.disk) // another one was before a sync that failed
		}
		disk := make([]byte, size)
		copy(disk, n.disk)
		for number := range n.dirty.sectors {
			delete(n.unknown.sectors, number)
			copy(disk[min(number*sector, size):], n.sector(number))
		}
		n.disk = disk
		if n.dirty.sizes != nil {
			n.unknown.sizes = nil
		}
		n.dirty = versions{}
	}, nil)
	if err != nil {
		for number, v := range n.dirty.sectors {
			if n.unknown.sectors == nil {
				n.unknown.sectors = make(map[int][][]byte)
			}
			n.unknown.sectors[number] = append(n.unknown.sectors[number], v...)
		}
		n.unknown.sizes = append(n.unknown.sizes, n.dirty.sizes...)
		n.dirty = versions{}
	}
	return err
}

func (h *handle) Close() error { return nil }

// write changes what a process sees.
func (n *inode) write(b []byte, off int64) {
	if len(b) == 0 {
		return
	}
	end := int(off) + len(b)
	if end > len(n.now) {
		n.now = append(n.now, make([]byte, end-len(n.now))...)
		n.dirty.sizes = append(n.dirty.sizes, end)
	}
	copy(n.now[off:], b)
	if n.dirty.sectors == nil {
		n.dirty.sectors = make(map[int][][]byte)
	}
	for i := int(off) / sector; i*sector < end; i++ {
		n.dirty.sectors[i] = append(n.dirty.sectors[i], n.sector(i))
	}
}

// sector returns a copy of a sector as a process sees it.
func (n *inode) sector(number int) []byte {
	b := make([]byte, sector)
	copy(b, n.now[min(number*sector, len(n.now)):])
	return b
}

// image builds a content of a size: for each sector, the synced version or one of
// those that may have been written.
func (n *inode) image(size int, rng *rand.Rand) []byte {
	out := make([]byte, size)
	copy(out, n.disk)
	for number := 0; number*sector < size; number++ {
		may, more := n.unknown.sectors[number], n.dirty.sectors[number]
		if len(may)+len(more) == 0 {
			continue
		}
		if i := rng.IntN(1 + len(may) + len(more)); i > len(may) {
			copy(out[number*sector:], more[i-len(may)-1])
		} else if i > 0 {
			copy(out[number*sector:], may[i-1])
		}
	}
	return out
}

// outage is how much of what was not synced survives a power cut.
type outage struct {
	name string
	rng  *rand.Rand // nil for all or nothing
	all  bool
}

func outages(random int) []outage {
	list := []outage{{name: "what was synced"}, {name: "what was written", all: true}}
	for i := range random {
		list = append(list, outage{name: fmt.Sprintf("some sectors, %d", i), rng: rand.New(rand.NewPCG(uint64(i), 7))})
	}
	return list
}

// after returns the disk after a power cut.
func (m *model) after(o outage) *model {
	names := maps.Clone(m.durable)
	switch {
	case o.all:
		names = maps.Clone(m.names)
	case o.rng != nil:
		may := slices.Concat(m.unknown, m.pending)
		for _, n := range may[:o.rng.IntN(len(may)+1)] {
			n.apply(names)
		}
	}
	next := newModel()
	for name, node := range names {
		data := node.disk
		switch {
		case o.all:
			data = node.now
		case o.rng != nil:
			sizes := slices.Concat([]int{len(node.disk)}, node.unknown.sizes, node.dirty.sizes)
			data = node.image(sizes[o.rng.IntN(len(sizes))], o.rng)
		}
		copied := &inode{now: slices.Clone(data), disk: slices.Clone(data)}
		next.names[name], next.durable[name] = copied, copied
	}
	return next
}

// restarted returns the disk as the next process finds it without a power cut.
func (m *model) restarted() *model {
	next := *m
	next.fault, next.off, next.ops = nil, false, nil
	return &next
}

// TestModelLosesWhatWasNotSynced shows that the model can fail the tests.
func TestModelLosesWhatWasNotSynced(t *testing.T) {
	m := newModel()
	f, _, err := m.open("a", os.O_CREATE|os.O_EXCL|os.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string, off int64) {
		t.Helper()
		if _, err := f.WriteAt([]byte(text), off); err != nil {
			t.Fatal(err)
		}
	}
	state := func(o outage) string {
		node := m.after(o).names["a"]
		if node == nil {
			return "none"
		}
		return string(node.now)
	}
	synced, written := outages(0)[0], outages(0)[1]
	want := func(o outage, text string) {
		t.Helper()
		if got := state(o); got != text {
			t.Errorf("%s: %q, want %q", o.name, got, text)
		}
	}
	write("one", 0)
	want(synced, "none")
	want(written, "one")
	if err := m.sync(); err != nil {
		t.Fatal(err)
	}
	want(synced, "")
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	want(synced, "one")
	write(" two", 3)
	m.fault = func(int, string) fault { return fault{err: unix.EIO} }
	if err := f.Datasync(); !errors.Is(err, unix.EIO) {
		t.Fatal(err)
	}
	m.fault = nil
	if err := f.Datasync(); err != nil {
		t.Fatal(err)
	}
	want(synced, "one") // the failed sync's pages are clean
	seen := make(map[string]bool)
	for _, o := range outages(40) {
		seen[state(o)] = true
	}
	if !seen["one"] || !seen["one two"] {
		t.Errorf("random outages left %v", seen)
	}
}
