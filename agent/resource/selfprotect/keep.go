package selfprotect

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// mappingsMu is held while the program's mappings are changed.
var mappingsMu sync.Mutex

// rehearsals is how often LockRehearsed calls rehearse, if it can open pagemap.
const rehearsals = 2

// LockRehearsed calls rehearse twice and locks the pages of code and constants that this
// process used both times, and the initialized variables of the program (mlock2(2),
// MLOCK_ONFAULT). It returns the size in bytes of the ranges that it locked.
//
// memory.min of a cgroup does not protect all of these pages: a page is charged to the
// cgroup whose process read it first, which may be that of a shell or of the service
// before its restart. Without memory, the kernel drops such pages, and a decision must
// read each page that it needs from a slow disk.
//
// The kernel does not report which pages a process uses, but only which pages it has
// mapped. So LockRehearsed first unmaps the pages, which leaves them in the page
// cache, and gives each page its own mapping: on a fault the kernel maps up to 64 KiB
// around a page, but never beyond its mapping. Other goroutines use pages during a
// rehearsal as well. Most of those are not used during the other one, which is short: it
// finds its pages in the page cache.
//
// The pages of variables cannot be unmapped, which would lose their values. Those that no
// value was written to are pages of the file, so they are dropped like code. They are few,
// and all are locked.
//
// If it cannot find the used pages of a part of the program, LockRehearsed locks all pages
// of that part that have been or will be read, and returns an error. Without pagemap, it
// does so with all parts, after one call of rehearse. If it cannot read the mappings of the
// program, it calls rehearse once and locks none.
func LockRehearsed(rehearse func()) (locked uint64, err error) {
	mappingsMu.Lock()
	defer mappingsMu.Unlock()
	constant, variable, err := programParts()
	if err != nil {
		rehearse()
		return 0, err
	}
	pagemap, err := os.Open("/proc/self/pagemap")
	if err != nil {
		rehearse()
		locked, lockErr := lock(append(constant, variable...))
		return locked, errors.Join(fmt.Errorf("find used program pages: %w", err), lockErr)
	}
	defer pagemap.Close()
	var failed error
	ranges := variable // to lock
	var separated []separatedPart
	for _, p := range constant {
		if err := p.separate(pagemap); err != nil {
			failed = errors.Join(failed, err)
			ranges = append(ranges, p)
			continue
		}
		separated = append(separated, separatedPart{addressRange: p})
	}
	for range rehearsals {
		for i := range separated {
			separated[i].unmap()
		}
		rehearse()
		for i := range separated {
			separated[i].findUsed(pagemap)
		}
	}
	for _, p := range separated {
		// Merge into one mapping, of which lock locks the used pages.
		if err := errors.Join(p.failed, p.advise(unix.MADV_NORMAL)); err != nil {
			failed = errors.Join(failed, err)
			ranges = append(ranges, p.addressRange)
			continue
		}
		ranges = append(ranges, p.runs()...)
	}
	locked, err = lock(ranges)
	return locked, errors.Join(failed, err)
}

// unmapProgram unmaps the pages of code and constants. They stay in the page cache, where
// the kernel drops pages that nothing has mapped first, and are mapped again when they are
// used. Locked pages stay mapped.
func unmapProgram() {
	constant, _, err := programParts()
	if err != nil {
		return // nothing depends on it
	}
	mappingsMu.Lock() // or the pages that a rehearsal uses could not be found
	defer mappingsMu.Unlock()
	for _, p := range constant {
		_ = p.advise(unix.MADV_DONTNEED) // it fails at a locked page
	}
}

// programParts returns the mapped parts of the program's file: those that this process
// cannot write, code and constants, and its initialized variables.
func programParts() (constant, variable []addressRange, err error) {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return nil, nil, fmt.Errorf("find program mappings: %w", err)
	}
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return nil, nil, fmt.Errorf("find program mappings: %w", err)
	}
	constant, variable = mappedParts(maps, program)
	return constant, variable, nil
}

// lock locks pages once they have been read. It reads none. It returns the size in
// bytes of the ranges that it locked, also with an error.
func lock(parts []addressRange) (locked uint64, failed error) {
	for _, p := range parts {
		if _, _, errno := unix.Syscall(unix.SYS_MLOCK2, p.start, p.end-p.start, unix.MLOCK_ONFAULT); errno != 0 {
			failed = errors.Join(failed, fmt.Errorf("lock %d bytes of the program: %w", p.end-p.start, errno))
			continue
		}
		locked += uint64(p.end - p.start)
	}
	return locked, failed
}

// addressRange is a range of addresses. end is exclusive.
type addressRange struct{ start, end uintptr }

func (p addressRange) advise(advice uintptr) error {
	if _, _, errno := unix.Syscall(unix.SYS_MADVISE, p.start, p.end-p.start, advice); errno != 0 {
		return fmt.Errorf("madvise %d bytes of the program: %w", p.end-p.start, errno)
	}
	return nil
}

// separate gives each page its own mapping.
func (p addressRange) separate(pagemap *os.File) error {
	entries, err := p.pages(pagemap)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.copied() { // by relocation or a breakpoint; the file does not have it
			return errors.New("find used program pages: some pages were modified in memory")
		}
	}
	// Adjacent mappings stay separate while their advice differs.
	size := uintptr(os.Getpagesize())
	for at := p.start; at < p.end; at += 2 * size {
		if err = (addressRange{at, at + size}).advise(unix.MADV_RANDOM); err != nil {
			return errors.Join(err, p.advise(unix.MADV_NORMAL))
		}
	}
	return nil
}

// separatedPart is a part of the program, each page of which has its own mapping.
type separatedPart struct {
	addressRange
	used   []bool // by page, whether all rehearsals used it; nil before the first
	failed error  // used is incomplete
}

// unmap unmaps the pages. No data is lost: the kernel reads the pages from the file
// again.
func (p *separatedPart) unmap() {
	p.failed = errors.Join(p.failed, p.advise(unix.MADV_DONTNEED))
}

// findUsed removes the pages that are not mapped from used.
func (p *separatedPart) findUsed(pagemap *os.File) {
	entries, err := p.pages(pagemap)
	if err != nil {
		p.failed = errors.Join(p.failed, err)
		return
	}
	if p.used == nil {
		p.used = slices.Repeat([]bool{true}, len(entries))
	}
	for i, e := range entries {
		p.used[i] = p.used[i] && e.present()
	}
}

// runs returns the used pages. It merges adjacent ones.
func (p *separatedPart) runs() (runs []addressRange) {
	size := uintptr(os.Getpagesize())
	for i, used := range p.used {
		if !used {
			continue
		}
		at := p.start + uintptr(i)*size
		if last := len(runs) - 1; last >= 0 && runs[last].end == at {
			runs[last].end += size
		} else {
			runs = append(runs, addressRange{at, at + size})
		}
	}
	return runs
}

// page is an entry of pagemap (proc_pid_pagemap(5)).
type page uint64

func (p page) present() bool { return p>>63&1 == 1 }
func (p page) swapped() bool { return p>>62&1 == 1 }

// copied reports whether the process has a private copy of the file's page.
func (p page) copied() bool { return p.swapped() || p.present() && p>>61&1 == 0 }

func (p addressRange) pages(pagemap *os.File) ([]page, error) {
	size := uintptr(os.Getpagesize())
	raw := make([]byte, (p.end-p.start)/size*8)
	if _, err := pagemap.ReadAt(raw, int64(p.start/size)*8); err != nil {
		return nil, fmt.Errorf("find used program pages: %w", err)
	}
	entries := make([]page, len(raw)/8)
	for i := range entries {
		entries[i] = page(binary.NativeEndian.Uint64(raw[i*8:]))
	}
	return entries, nil
}

// mappedParts returns the readable parts of a file that a process has mapped, those that it
// cannot write and those that it can, from the content of proc_pid_maps(5).
func mappedParts(maps []byte, file string) (constant, variable []addressRange) {
	for line := range bytes.Lines(maps) {
		fields := strings.SplitN(strings.TrimSuffix(string(line), "\n"), " ", 6)
		if len(fields) < 6 || strings.TrimLeft(fields[5], " ") != file {
			continue
		}
		from, to, _ := strings.Cut(fields[0], "-")
		start, err1 := strconv.ParseUint(from, 16, strconv.IntSize)
		end, err2 := strconv.ParseUint(to, 16, strconv.IntSize)
		if err1 != nil || err2 != nil || start >= end {
			continue
		}
		part := addressRange{uintptr(start), uintptr(end)}
		switch access := fields[1]; {
		case strings.HasPrefix(access, "r-"):
			constant = append(constant, part)
		case strings.HasPrefix(access, "rw"):
			variable = append(variable, part)
		}
	}
	return constant, variable
}
