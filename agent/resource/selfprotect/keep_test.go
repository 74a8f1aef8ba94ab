package selfprotect

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestMappedParts(t *testing.T) {
	const maps = "00400000-01200000 r-xp 00000000 fe:00 1234                               /usr/bin/tinylet (deleted)\n" +
		"01200000-01a00000 r--p 00e00000 fe:00 1234                               /usr/bin/tinylet (deleted)\n" +
		"01a00000-01a80000 rw-p 01600000 fe:00 1234                               /usr/bin/tinylet (deleted)\n" +
		"01a80000-01b00000 rw-p 00000000 00:00 0 \n" +
		"01b00000-01c00000 ---p 00000000 fe:00 1234                               /usr/bin/tinylet (deleted)\n" +
		"02000000-02001000 r--p 00000000 fe:00 99                                 /usr/bin/other\n" +
		"7000-6000 r--p 00000000 fe:00 1234                                       /usr/bin/tinylet (deleted)\n" +
		"zz-6000 r--p 00000000 fe:00 1234                                         /usr/bin/tinylet (deleted)\n" +
		"torn\n"
	constant, variable := mappedParts([]byte(maps), "/usr/bin/tinylet (deleted)")
	want := [][]addressRange{{{0x400000, 0x1200000}, {0x1200000, 0x1a00000}}, {{0x1a00000, 0x1a80000}}}
	if diff := cmp.Diff(want, [][]addressRange{constant, variable}, cmp.AllowUnexported(addressRange{})); diff != "" {
		t.Error(diff)
	}
}

// TestKeepRehearsed checks how much of the program the kernel reports as locked
// (proc_pid_smaps(5)): the pages that both rehearsals used and the initialized variables,
// and no more than that.
func TestKeepRehearsed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root: the kernel lets others keep too little")
	}
	ran := 0
	initialized[len(initialized)/2] = 2 // the file has 1
	begun := time.Now()
	kept, err := LockRehearsed(func() {
		ran++
		read(usedByBoth)
		if ran == 1 {
			other := make(chan struct{})
			go func() {
				defer close(other)
				read(usedByOther)
			}()
			<-other
		}
		if err := json.Unmarshal([]byte(`{"a": [1, 2]}`), &map[string]any{}); err != nil {
			t.Error(err)
		}
		runtime.GC()
	})
	t.Logf("%d kB are kept, after %v", kept>>10, time.Since(begun))
	if err != nil {
		t.Fatal(err)
	}
	if ran != rehearsals {
		t.Errorf("%d rehearsals", ran)
	}
	if !lockedAt(t, middle(usedByBoth)) {
		t.Error("a page that both rehearsals used is not locked")
	}
	if lockedAt(t, middle(usedByOther)) {
		t.Error("a page that another goroutine used during one rehearsal is locked")
	}
	constant, _, err := programParts()
	if err != nil {
		t.Fatal(err)
	}
	var all uint64
	for _, p := range constant {
		all += uint64(p.end - p.start)
	}
	if kept == 0 || kept > all/2 {
		t.Errorf("%d bytes are kept of the program's %d, want what the rehearsal used", kept, all)
	}
	if at := uintptr(unsafe.Pointer(&initialized)); !lockedAt(t, at) {
		t.Errorf("the initialized variable at %x is not locked", at)
	}
	if initialized[len(initialized)/2] != 2 {
		t.Error("an initialized variable has lost its value")
	}
	if locked := lockedOfProgram(t); locked != kept {
		t.Errorf("the kernel shows %d bytes of the program as locked, want %d", locked, kept)
	}
	// The code of the rehearsal is among it: this function's own page.
	at := uintptr(reflect.ValueOf(json.Unmarshal).Pointer())
	if !lockedAt(t, at) {
		t.Errorf("the code that the rehearsal ran, at %x, is not locked", at)
	}
}

// Constants of the program that have whole pages of their own.
const (
	chars64     = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-+"
	kib1        = chars64 + chars64 + chars64 + chars64 + chars64 + chars64 + chars64 + chars64 + chars64 + chars64 + chars64 + chars64 + chars64 + chars64 + chars64 + chars64
	kib8        = kib1 + kib1 + kib1 + kib1 + kib1 + kib1 + kib1 + kib1
	kib64       = kib8 + kib8 + kib8 + kib8 + kib8 + kib8 + kib8 + kib8
	usedByBoth  = kib64 + "both rehearsals" + kib64
	usedByOther = kib64 + "another goroutine" + kib64
)

// initialized is in a part of the program's file that is mapped for writing.
var initialized = [2 << 12]byte{0: 1, 1 << 12: 1, 2<<12 - 1: 1}

// middle returns the address of the middle of a constant.
func middle(constant string) uintptr {
	return uintptr(unsafe.Pointer(unsafe.StringData(constant))) + uintptr(len(constant)/2)
}

var lastRead byte

// read reads the middle of a constant. If it were inlined, it would read nothing.
//
//go:noinline
func read(constant string) { lastRead = constant[len(constant)/2] }

func TestPage(t *testing.T) {
	for _, tc := range []struct {
		name            string
		entry           page
		present, copied bool
	}{
		{"not mapped", 0, false, false},
		{"of the file", 1<<63 | 1<<61 | 77, true, false},
		{"a copy", 1<<63 | 77, true, true},
		{"a swapped copy", 1 << 62, false, true},
	} {
		if got := tc.entry; got.present() != tc.present || got.copied() != tc.copied {
			t.Errorf("%s: present %v, copied %v", tc.name, got.present(), got.copied())
		}
	}
}

// mapping is an entry of smaps.
type mapping struct {
	addressRange
	file   string
	locked bool
}

func mappings(t *testing.T) (all []mapping) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if from, to, ok := strings.Cut(fields[0], "-"); ok {
			start, err1 := strconv.ParseUint(from, 16, 64)
			end, err2 := strconv.ParseUint(to, 16, 64)
			if err := errors.Join(err1, err2); err != nil {
				t.Fatal(err)
			}
			m := mapping{addressRange: addressRange{uintptr(start), uintptr(end)}}
			if len(fields) > 5 {
				m.file = fields[5]
			}
			all = append(all, m)
		}
		if fields[0] == "VmFlags:" {
			all[len(all)-1].locked = slices.Contains(fields, "lo")
		}
	}
	return all
}

func lockedOfProgram(t *testing.T) (bytes uint64) {
	t.Helper()
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mappings(t) {
		if m.locked && m.file == program {
			bytes += uint64(m.end - m.start)
		}
	}
	return bytes
}

func lockedAt(t *testing.T, at uintptr) bool {
	t.Helper()
	return slices.ContainsFunc(mappings(t), func(m mapping) bool { return m.locked && m.start <= at && at < m.end })
}

// A range that cannot be locked does not count as locked.
func TestLockCountsWhatItLocked(t *testing.T) {
	page := uintptr(os.Getpagesize())
	if locked, err := lock([]addressRange{{0, page}}); locked != 0 || err == nil {
		t.Errorf("a page that is not mapped: %d bytes are locked, %v", locked, err)
	}
	mapped, err := unix.Mmap(-1, 0, int(page), unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mapped)
	at := uintptr(unsafe.Pointer(&mapped[0]))
	if locked, err := lock([]addressRange{{0, page}, {at, at + page}}); locked != uint64(page) || err == nil {
		t.Errorf("a page that is mapped, after one that is not: %d bytes are locked, %v", locked, err)
	}
}

// TestUnmapProgram checks that unmapped pages are no longer resident in this process, and
// that the program still runs.
func TestUnmapProgram(t *testing.T) {
	resident := func() int {
		text, err := os.ReadFile("/proc/self/status")
		if err != nil {
			t.Skip(err)
		}
		_, rest, found := strings.Cut(string(text), "RssFile:")
		var kilobytes int
		if _, err := fmt.Sscan(rest, &kilobytes); !found || err != nil {
			t.Skipf("no RssFile in /proc/self/status: %v", err)
		}
		return kilobytes
	}
	text, err := os.ReadFile("/proc/self/exe") // pages of the file are in the page cache
	if err != nil || len(text) == 0 {
		t.Fatal(err)
	}
	constant, _, err := programParts()
	if err != nil {
		t.Fatal(err)
	}
	var sum byte
	for _, p := range constant {
		for at := p.start; at < p.end; at += 4096 {
			sum += *(*byte)(unsafe.Add(nil, at)) // maps the page
		}
	}
	before := resident()
	unmapProgram()
	if after := resident(); after > before/2 {
		t.Errorf("%d of %d kB of the program are resident (%d)", after, before, sum)
	}
}
