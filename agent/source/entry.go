package source

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/source/manifest"
	"github.com/tinylet/tinylet/agent/store/filewatch"
)

// entry is one file of the directory. Its states are:
//
//	          new, changed or touched
//	              v
//	settling --- unchanged at the next scan ---> read ---> pods
//	   ^                                         | |
//	   +------- changed while being read --------+ | bad
//	   ^                                           v
//	   +------- changed ------------------------ doubted --- unchanged for
//	                                             doubtTime ---> pods, event
//
// An entry is dropped when two scans in a row do not find it.
type entry struct {
	name, path string
	cpath      filewatch.Path

	listed   uint64 // the last scan that found it
	missing  bool   // not found by the last scan
	vanished bool   // listed by the last scan, but stat found nothing
	touched  bool   // inotify reported a change
	pending  bool   // the current version has not been read
	doubted  bool   // the current version is bad, perhaps half-written

	sig       filewatch.Signature
	since     time.Time         // when sig last changed
	sum       [sha256.Size]byte // of the content parsed last
	parsed    bool              // sum is valid
	whole     bool              // some version of it was parsed completely
	pods      []*v1.Pod
	lastError string // last reported error
}

// next reports whether to read the file, whose stat is sig, or to scan again after
// settleTime. With calm, a changed file need not settle before it is read.
func (e *entry) next(sig filewatch.Signature, calm bool) (read, unsettled bool) {
	changed := e.touched || sig != e.sig
	e.sig, e.touched = sig, false
	if changed {
		e.pending, e.doubted = true, false
		e.since = time.Now()
		if calm {
			e.since = time.Time{}
		}
	}
	unsettled = changed && !calm || e.doubted && time.Since(e.since) < doubtTime
	return e.pending && !unsettled, e.pending && unsettled
}

// doubt reports whether bad content is too new to be reported.
func (e *entry) doubt() bool {
	e.doubted = time.Since(e.since) < doubtTime
	e.pending = e.doubted
	return e.doubted
}

// errTooLarge is returned for a file or a response over manifest.MaxSize.
var errTooLarge = fmt.Errorf("larger than %d bytes", manifest.MaxSize)

// errChanged means that the file is being written.
var errChanged = errors.New("changed while being read")

// read returns the whole content of the file that sig describes, or errChanged.
// Opening never blocks, whatever kind of file it has become.
func (e *entry) read() ([]byte, error) {
	file, err := os.OpenFile(e.path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if err := e.same(file); err != nil {
		return nil, err
	}
	if e.sig.Size > manifest.MaxSize {
		return nil, errTooLarge
	}
	data, err := readAtMost(file, manifest.MaxSize)
	if err != nil {
		return nil, err
	}
	return data, e.same(file)
}

func (e *entry) same(file *os.File) error {
	sig, err := filewatch.StatFile(file)
	if err != nil {
		return &fs.PathError{Op: "stat", Path: e.path, Err: err}
	}
	if sig != e.sig {
		return errChanged
	}
	return nil
}

// readAtMost reads all of r. It fails with errTooLarge beyond limit bytes.
func readAtMost(r io.Reader, limit int) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	if err == nil && len(data) > limit {
		err = errTooLarge
	}
	return data, err
}

// ref returns the reference of the entry's pod for an event. Without exactly
// one pod it returns the zero Ref, which means the node.
func (e *entry) ref() pod.Ref {
	if len(e.pods) == 1 {
		return pod.RefOf(e.pods[0])
	}
	return pod.Ref{}
}
