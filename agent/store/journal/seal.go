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

// sealer encrypts and authenticates stored data. A nil sealer, for a plain file,
// changes nothing. It is safe for concurrent use.
//
// Nonces are random, so one key is good for 2^32 records (NIST SP 800-38D,
// 8.3), which is more than any flash endures.
type sealer struct {
	aead cipher.AEAD
	id   uint64
}

// newSealer returns nil if key is nil.
func newSealer(key []byte) (*sealer, error) {
	if key == nil {
		return nil, nil
	}
	if len(key) != keySize {
		return nil, fmt.Errorf("key has %d bytes, not %d", len(key), keySize)
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

// keyID returns the id of the key, 0 for a plain file.
func (s *sealer) keyID() uint64 {
	if s == nil {
		return 0
	}
	return s.id
}

// overhead returns how many bytes sealing adds.
func (s *sealer) overhead() int {
	if s == nil {
		return 0
	}
	return nonceSize + tagSize
}

// seal appends the stored form of data to b. data and b must not overlap.
func (s *sealer) seal(b, data, additional []byte) []byte {
	if s == nil {
		return append(b, data...)
	}
	var nonce [nonceSize]byte
	rand.Read(nonce[:]) // never fails
	b = append(b, nonce[:]...)
	return s.aead.Seal(b, nonce[:], data, additional)
}

// open returns the data of a stored form. It may use the memory of stored. ok is
// false if stored was not sealed with the same key and additional data. In a
// plain file ok is always true.
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

// headData appends the additional data of a head to b: the authenticated part of
// the batch header, and the record's number in the batch.
func headData(b, header []byte, number uint32) []byte {
	return binary.LittleEndian.AppendUint32(append(b, header[:headerSealed]...), number)
}

// valueData appends the additional data of a value to b. It does not contain the
// record's number, because the head has the value's hash.
func valueData(b []byte, file, seq uint64, name string) []byte {
	b = append(b, 'v')
	b = binary.LittleEndian.AppendUint64(b, file)
	b = binary.LittleEndian.AppendUint64(b, seq)
	return append(b, name...)
}
