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
)

// entry is one file of the folder.
//
//	          new, changed or touched
//	              v
//	settling --- the same at the next look ---> read ---> pods
//	   ^                                         | |
//	   +------- changed while being read --------+ | bad
//	   ^                                           v
//	   +------- changed ------------------------ doubted --- the same for
//	                                             doubtTime ---> pods, event
//
// It leaves the folder's pods when two looks in a row do not find it.
type entry struct {
	name, path string
	cpath      cpath

	listed   uint64 // the look that found it last
	missing  bool   // the last look did not find it
	vanished bool   // the last look found its name only
	touched  bool   // inotify told of it
	pending  bool   // not read as it is now
	doubted  bool   // read as it is now, and bad: it may be half-written

	sig     signature
	since   time.Time         // sig is as it is
	sum     [sha256.Size]byte // of the content parsed last
	parsed  bool              // there is such a content
	whole   bool              // all pods of some content of it are known
	pods    []*v1.Pod
	trouble string // told last
}

// step is what to do with an entry after a look at it.
type step uint8

const (
	stepNothing step = iota
	stepWait         // look again when it may have settled
	stepRead
)

// next decides what to do with a file that stat shows as sig. calm says
// that a change need not be waited for.
func (e *entry) next(sig signature, calm bool) step {
	changed := e.touched || sig != e.sig
	e.sig, e.touched = sig, false
	if changed {
		e.pending, e.doubted = true, false
		e.since = time.Now()
		if calm {
			e.since = time.Time{}
		}
	}
	switch {
	case !e.pending:
		return stepNothing
	case changed && !calm, e.doubted && time.Since(e.since) < doubtTime:
		return stepWait
	default:
		return stepRead
	}
}

// doubt says that bad content is not worth telling yet, because it is new.
func (e *entry) doubt() bool {
	e.doubted = time.Since(e.since) < doubtTime
	e.pending = e.doubted
	return e.doubted
}

// errTooLarge is for a file over manifest.MaxSize.
var errTooLarge = fmt.Errorf("it is larger than %d bytes", manifest.MaxSize)

// errChanged says that somebody writes the file.
var errChanged = errors.New("it changes while being read")

// read answers the file's whole content as of sig, or errChanged. Opening
// never blocks, whatever the file has become.
func (e *entry) read() ([]byte, error) {
	file, err := os.OpenFile(e.path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := e.readFrom(file)
	if err != nil {
		return nil, err
	}
	return data, nil
}

func (e *entry) readFrom(file *os.File) ([]byte, error) {
	if err := e.same(file); err != nil {
		return nil, err
	}
	if e.sig.size > manifest.MaxSize {
		return nil, errTooLarge
	}
	data := make([]byte, 0, e.sig.size+1)
	data, err := readAtMost(file, data, manifest.MaxSize)
	if err != nil {
		return nil, err
	}
	return data, e.same(file)
}

func (e *entry) same(file *os.File) error {
	sig, err := statFD(int(file.Fd()))
	if err != nil {
		return &fs.PathError{Op: "stat", Path: e.path, Err: err}
	}
	if sig != e.sig {
		return errChanged
	}
	return nil
}

// readAtMost appends all of r to data, or fails with errTooLarge beyond
// limit bytes.
func readAtMost(r io.Reader, data []byte, limit int) ([]byte, error) {
	for {
		if len(data) > limit {
			return nil, errTooLarge
		}
		if len(data) == cap(data) {
			data = append(data, 0)[:len(data)]
		}
		n, err := r.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		if errors.Is(err, io.EOF) {
			if len(data) > limit {
				return nil, errTooLarge
			}
			return data, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// ref names the entry's pods for an event; the node if there is none.
func (e *entry) ref() pod.Ref {
	if len(e.pods) == 1 {
		return pod.RefOf(e.pods[0])
	}
	return pod.Ref{}
}
