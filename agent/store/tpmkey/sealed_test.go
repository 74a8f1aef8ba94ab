package tpmkey

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-tpm/tpm2"
)

// made returns a Sealed that is valid except for the TPM.
func made(pcrs ...int) *Sealed {
	s := &Sealed{parent: bytes.Repeat([]byte{11}, nameSize), private: bytes.Repeat([]byte{12}, 100)}
	for _, index := range pcrs {
		s.pcrs = append(s.pcrs, pcr{index, sha256.Sum256([]byte{byte(index)})})
	}
	object := keyTemplate(s.pcrs)
	object.Unique = tpm2.NewTPMUPublicID(tpm2.TPMAlgKeyedHash, &tpm2.TPM2BDigest{Buffer: bytes.Repeat([]byte{13}, sha256.Size)})
	s.public = tpm2.Marshal(object)
	return s
}

func TestEveryTornFileIsRefused(t *testing.T) {
	text := made(7, 11).Encode()
	if _, err := Parse(text); err != nil {
		t.Fatal(err)
	}
	for n := range text {
		if s, err := Parse(text[:n]); err == nil {
			t.Fatalf("%d of %d bytes: %+v", n, len(text), s)
		}
		// What a power cut may leave of a file without fsync.
		zeros := bytes.Clone(text)
		clear(zeros[n:])
		if s, err := Parse(zeros); err == nil {
			t.Fatalf("zeros from %d on: %+v", n, s)
		}
		for bit := range 8 {
			damaged := bytes.Clone(text)
			damaged[n] ^= 1 << bit
			if s, err := Parse(damaged); err == nil {
				t.Fatalf("bit %d of byte %d: %+v", bit, n, s)
			}
		}
	}
	if _, err := Parse(append(text, '\n')); err == nil {
		t.Error("a line too many")
	}
}

func TestParseRefuses(t *testing.T) {
	for name, row := range map[string]struct {
		change func(s *Sealed)
		want   string
	}{
		"no parent":       {func(s *Sealed) { s.parent = nil }, "storage root key"},
		"long parent":     {func(s *Sealed) { s.parent = make([]byte, 66) }, "storage root key"},
		"no private":      {func(s *Sealed) { s.private = nil }, "private part"},
		"long private":    {func(s *Sealed) { s.private = make([]byte, maxPrivate+1) }, "private part"},
		"no public":       {func(s *Sealed) { s.public = nil }, "public part"},
		"another public":  {func(s *Sealed) { s.public[0] ^= 1 }, "public part"},
		"may leave":       {func(s *Sealed) { s.public[7] &^= 2 }, "public part"},
		"another policy":  {func(s *Sealed) { s.pcrs[0].value[0] ^= 1 }, "public part"},
		"policy dropped":  {func(s *Sealed) { s.pcrs = nil }, "public part"},
		"PCRs descending": {func(s *Sealed) { s.pcrs[0], s.pcrs[1] = s.pcrs[1], s.pcrs[0] }, "ascending"},
		"a PCR twice":     {func(s *Sealed) { s.pcrs[1] = s.pcrs[0] }, "ascending"},
		"PCR 24":          {func(s *Sealed) { s.pcrs[1].index = 24 }, "PCR 24"},
		"negative PCR":    {func(s *Sealed) { s.pcrs[0].index = -1 }, "PCR -1"},
		"many PCRs":       {func(s *Sealed) { s.pcrs = make([]pcr, 100) }, "lines"},
	} {
		t.Run(name, func(t *testing.T) {
			s := made(7, 11)
			row.change(s)
			if _, err := Parse(s.Encode()); err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("error %v", err)
			}
		})
	}
	for name, row := range map[string]struct{ from, to, want string }{
		"later version":   {"-key 1\n", "-key 2\n", "a later release"},
		"something else":  {"tinylet-tpm-key", "-----BEGIN TSS2", "not a sealed key"},
		"capitals":        {"0b0b", "0B0B", "not canonical"},
		"a PCR with zero": {"pcr 7 ", "pcr 07 ", "not canonical"},
		"a PCR of words":  {"pcr 7 ", "pcr seven ", "not a PCR"},
		"a short PCR":     {"pcr 7 ", "pcr 7 00", "not a PCR"},
		"no hexadecimal":  {"private 0c", "private 0g", "line 4"},
		"lines swapped":   {"parent ", "public ", "line 2"},
	} {
		t.Run(name, func(t *testing.T) {
			text := string(made(7, 11).Encode())
			text = strings.Replace(text[:strings.Index(text, "sha256 ")], row.from, row.to, 1)
			if _, err := Parse(withSum(text)); err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("error %v", err)
			}
		})
	}
}

func withSum(text string) []byte {
	return fmt.Appendf(nil, "%ssha256 %x\n", text, sha256.Sum256([]byte(text)))
}

// FuzzParse also corrects the checksum of its input.
func FuzzParse(f *testing.F) {
	for _, s := range []*Sealed{made(), made(7), made(0, 23)} {
		text := s.Encode()
		f.Add(text)
		f.Add(text[:bytes.LastIndex(text, []byte("sha256 "))])
		f.Add(text[:len(text)/2])
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, text := range [][]byte{text, withSum(string(text))} {
			s, err := Parse(text)
			if err != nil {
				continue
			}
			if got := s.Encode(); !bytes.Equal(got, text) {
				t.Fatalf("parsed\n%s\nand encoded\n%s", text, got)
			}
			if len(s.pcrs) > MaxPCR+1 || len(s.private) > maxPrivate || s.checkPublic() != nil {
				t.Fatalf("accepted %+v", s)
			}
		}
	})
}
