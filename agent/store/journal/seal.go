package journal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

const (
	keySize   = 32
	nonceSize = 12
	tagSize   = 16
)

// sealer encrypts and authenticates what is stored. Nil is a plain file's: it
// changes nothing. It may be used concurrently.
//
// Nonces are random, so one key is good for 2^32 records (NIST SP 800-38D,
// 8.3), which is more than any flash stands.
type sealer struct {
	aead cipher.AEAD
	id   uint64
}

// newSealer answers nil for no key.
func newSealer(key []byte) (*sealer, error) {
	if key == nil {
		return nil, nil
	}
	if len(key) != keySize {
		return nil, fmt.Errorf("the key has %d bytes, not %d", len(key), keySize)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("tinylet journal key id")) // never fails
	id := binary.LittleEndian.Uint64(mac.Sum(nil))
	return &sealer{aead: aead, id: max(id, 1)}, nil
}

// keyID is 0 in a plain file.
func (s *sealer) keyID() uint64 {
	if s == nil {
		return 0
	}
	return s.id
}

// overhead is by how many bytes sealed data are longer.
func (s *sealer) overhead() int {
	if s == nil {
		return 0
	}
	return nonceSize + tagSize
}

// seal appends the data in stored form to b, which they do not overlap.
func (s *sealer) seal(b, data, additional []byte) []byte {
	if s == nil {
		return append(b, data...)
	}
	var nonce [nonceSize]byte
	rand.Read(nonce[:]) // never fails
	b = append(b, nonce[:]...)
	return s.aead.Seal(b, nonce[:], data, additional)
}

// open answers the data of their stored form, in whose memory they may stand.
// They are not ok if they are not what was sealed with the same additional
// data; a plain file cannot tell.
func (s *sealer) open(stored, additional []byte) (data []byte, ok bool) {
	if s == nil {
		return stored, true
	}
	if len(stored) < nonceSize+tagSize {
		return nil, false
	}
	text := stored[nonceSize:]
	data, err := s.aead.Open(text[:0], stored[:nonceSize], text, additional)
	return data, err == nil
}

// headData is the additional data of a head: what its batch's header says, and
// its place in the batch.
func headData(b, header []byte, number uint32) []byte {
	return binary.LittleEndian.AppendUint32(append(b, header[:headerSealed]...), number)
}

// valueData is the additional data of a value. Its place in the batch need not
// be in it: the head has the value's hash.
func valueData(b []byte, file, seq uint64, name string) []byte {
	b = append(b, 'v')
	b = binary.LittleEndian.AppendUint64(b, file)
	b = binary.LittleEndian.AppendUint64(b, seq)
	return append(b, name...)
}
