package offline

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"

	"github.com/tinylet/tinylet/agent/store/atomicfile"
	"github.com/tinylet/tinylet/agent/store/secretfile"
)

// AnchorSuffix is the suffix of the anchor file of a key file.
const AnchorSuffix = ".anchor"

// FileAnchor is a journal.Anchor in a file next to the key. It is useful if the
// key is on storage that survives a reboot, and that someone with write access
// to the journal's disk cannot write to. It is used only if the file was
// created explicitly: next to a key on a slot of an A/B update or in a tmpfs, it
// would be lost.
//
// The file has four lines: the format version, the id in hexadecimal, the
// generation and whether it is bound, and the SHA-256 of these lines.
type FileAnchor struct{ path string }

// NewFileAnchor returns the anchor in a file. It reads nothing.
func NewFileAnchor(path string) *FileAnchor { return &FileAnchor{path: path} }

const (
	anchorMagic = "tinylet-journal-anchor 1"
	maxAnchor   = 256
)

// anchorState is the content of the file.
type anchorState struct {
	id         [16]byte
	generation uint64
	bound      bool
}

func (s *anchorState) encode() []byte {
	var b bytes.Buffer
	word := "begun"
	if s.bound {
		word = "bound"
	}
	fmt.Fprintf(&b, "%s\nid %x\n%s %d\n", anchorMagic, s.id, word, s.generation)
	fmt.Fprintf(&b, "sha256 %x\n", sha256.Sum256(b.Bytes()))
	return b.Bytes()
}

// parseAnchor parses the output of encode and rejects anything else.
func parseAnchor(text []byte) (s anchorState, ok bool) {
	var id []byte
	var word string
	_, err := fmt.Sscanf(string(text), anchorMagic+"\nid %x\n%s %d\n", &id, &word, &s.generation)
	if err != nil || len(id) != len(s.id) {
		return s, false
	}
	s.id, s.bound = [16]byte(id), word == "bound"
	return s, bytes.Equal(s.encode(), text)
}

// Make creates the anchor, unbound, if it does not exist.
func (a *FileAnchor) Make() error {
	if _, err := a.load(); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var s anchorState
	_, _ = rand.Read(s.id[:]) // it never fails (crypto/rand)
	return a.save(&s)
}

// Read implements journal.Anchor.
func (a *FileAnchor) Read() (id [16]byte, generation uint64, bound bool, err error) {
	s, err := a.load()
	return s.id, s.generation, s.bound, err
}

// Begin implements journal.Anchor. It fails, since an anchor file is only
// created explicitly.
func (a *FileAnchor) Begin() (id [16]byte, generation uint64, err error) {
	return id, 0, fmt.Errorf("%q: %w", a.path, fs.ErrNotExist)
}

// Advance implements journal.Anchor.
func (a *FileAnchor) Advance(generation uint64) error {
	s, err := a.load()
	if err != nil {
		return err
	}
	s.bound, s.generation = true, max(s.generation, generation)
	return a.save(&s)
}

func (a *FileAnchor) load() (anchorState, error) {
	text, err := secretfile.Read(a.path, maxAnchor)
	if err != nil {
		return anchorState{}, fmt.Errorf("read journal anchor: %w", err)
	}
	s, ok := parseAnchor(text)
	if !ok {
		return anchorState{}, fmt.Errorf("read journal anchor: %q is damaged: remove it, and run `tinylet journal-key --migrate --anchor` if you trust the journal", a.path)
	}
	return s, nil
}

func (a *FileAnchor) save(s *anchorState) error {
	if err := atomicfile.Write(a.path, s.encode(), 0o600); err != nil {
		return fmt.Errorf("write journal anchor: %w", err)
	}
	return nil
}
