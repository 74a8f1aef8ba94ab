package cache

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"sync"
)

// Key identifies a lookup. Its parameters cannot be derived from it without the
// secret of the Hasher.
type Key [sha256.Size]byte

// Hasher computes Keys with a random secret that never leaves the process. A Key alone
// therefore does not reveal the parameters of a lookup, and crafted parameters do not
// collide with others (k8s.io/apiserver/pkg/authentication/token/cache does the same). Its
// methods may be called concurrently.
type Hasher struct{ macs sync.Pool }

// NewHasher returns a Hasher with a new secret; the Keys of two Hashers differ.
func NewHasher() *Hasher {
	var secret [32]byte
	_, _ = rand.Read(secret[:]) // crashes the process instead of returning an error
	h := new(Hasher)
	h.macs.New = func() any { return hmac.New(sha256.New, secret[:]) }
	return h
}

// Key returns the Key of several parts. Each part is prefixed with its length, so
// "ab", "c" and "a", "bc" have different Keys.
func (h *Hasher) Key(parts ...string) (key Key) {
	mac := h.macs.Get().(hash.Hash)
	defer h.macs.Put(mac)
	var length [8]byte
	for _, part := range parts {
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		mac.Write(length[:])
		mac.Write([]byte(part))
	}
	mac.Sum(key[:0])
	mac.Reset()
	return key
}
