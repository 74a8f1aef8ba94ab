package tpmkey

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/tinylet/tinylet/agent/store/secretfile"
)

// KeySize is the size of a key in bytes.
const KeySize = 32

// MaxPCR is the last PCR that every TPM has.
const MaxPCR = 23

const (
	magic    = "tinylet-tpm-key "
	version1 = "1"
	// maxSealed bounds a file, and maxPrivate the private part, in bytes. Both
	// are far above what a TPM returns for 32 bytes.
	maxSealed  = 16 << 10
	maxPrivate = 1 << 10
	nameSize   = 2 + sha256.Size
)

// Sealed is a key that one TPM can unseal.
type Sealed struct {
	parent  []byte // the storage root key's name
	public  []byte
	private []byte
	pcrs    []pcr // ascending
}

// pcr is the value of a PCR when the key was sealed.
type pcr struct {
	index int
	value [sha256.Size]byte
}

// Encode returns the content of the file.
func (s *Sealed) Encode() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s%s\nparent %x\npublic %x\nprivate %x\n", magic, version1, s.parent, s.public, s.private)
	for _, p := range s.pcrs {
		fmt.Fprintf(&b, "pcr %d %x\n", p.index, p.value)
	}
	fmt.Fprintf(&b, "sha256 %x\n", sha256.Sum256(b.Bytes()))
	return b.Bytes()
}

// Parse decodes what Encode returned. It rejects any other form.
func Parse(text []byte) (*Sealed, error) {
	first, _, _ := bytes.Cut(text, []byte("\n"))
	version, ours := bytes.CutPrefix(first, []byte(magic))
	switch {
	case !ours:
		return nil, errors.New("not a sealed key of tinylet: create one with `tinylet journal-key --tpm`")
	case string(version) != version1:
		return nil, fmt.Errorf("format version %.20q is unknown, this tinylet supports version %s: run a later release", version, version1)
	}
	at := bytes.LastIndex(text, []byte("\nsha256 ")) + 1
	if at == 0 || text[len(text)-1] != '\n' {
		return nil, errors.New("torn file: it ends before its checksum")
	}
	if want := fmt.Sprintf("sha256 %x\n", sha256.Sum256(text[:at])); string(text[at:]) != want {
		return nil, errors.New("damaged file: checksum mismatch")
	}
	s, err := parseLines(strings.Split(strings.TrimSuffix(string(text[:at]), "\n"), "\n")[1:])
	if err != nil {
		return nil, err
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	if !bytes.Equal(s.Encode(), text) {
		return nil, errors.New("the encoding is not canonical")
	}
	return s, nil
}

func parseLines(lines []string) (*Sealed, error) {
	s := &Sealed{}
	fields := []struct {
		name string
		to   *[]byte
	}{{"parent ", &s.parent}, {"public ", &s.public}, {"private ", &s.private}}
	if len(lines) < len(fields) || len(lines) > len(fields)+MaxPCR+1 {
		return nil, fmt.Errorf("%d lines between the first and the last", len(lines))
	}
	for i, f := range fields {
		value, ok := strings.CutPrefix(lines[i], f.name)
		data, err := hex.DecodeString(value)
		if !ok || err != nil {
			return nil, fmt.Errorf("line %d is not %q", i+2, f.name+"…")
		}
		*f.to = data
	}
	for _, line := range lines[len(fields):] {
		words := strings.Split(line, " ")
		if len(words) != 3 || words[0] != "pcr" {
			return nil, fmt.Errorf("line %.20q is not a PCR", line)
		}
		index, err := strconv.Atoi(words[1])
		value, valueErr := hex.DecodeString(words[2])
		if err != nil || valueErr != nil || len(value) != sha256.Size {
			return nil, fmt.Errorf("line %.20q is not a PCR", line)
		}
		s.pcrs = append(s.pcrs, pcr{index, [sha256.Size]byte(value)})
	}
	return s, nil
}

// check validates the parts before they are sent to a TPM.
func (s *Sealed) check() error {
	last := -1
	for _, p := range s.pcrs {
		if p.index <= last || p.index > MaxPCR {
			return fmt.Errorf("PCR %d is not one of 0 to %d in ascending order", p.index, MaxPCR)
		}
		last = p.index
	}
	if len(s.parent) != nameSize {
		return fmt.Errorf("the name of the storage root key has %d bytes, not %d", len(s.parent), nameSize)
	}
	if len(s.private) == 0 || len(s.private) > maxPrivate {
		return fmt.Errorf("the private part has %d bytes, not 1 to %d", len(s.private), maxPrivate)
	}
	return s.checkPublic()
}

// ReadFile reads a file that Encode wrote. Errors name the path. It blocks on the
// disk.
func ReadFile(path string) (*Sealed, error) {
	text, err := secretfile.ReadAny(path, maxSealed)
	if err != nil {
		return nil, err
	}
	s, err := Parse(text)
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: path, Err: err}
	}
	return s, nil
}
