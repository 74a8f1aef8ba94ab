package cache

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"sync"
)

// Key stands for a question, whatever its length. What was asked cannot be
// found from it without the Hasher's own key.
type Key [sha256.Size]byte

// Hasher makes Keys under a random key of its own that leaves the process in
// no way, so that neither a dump of the memory nor a crafted question tells
// or meets another (k8s.io/apiserver/pkg/authentication/token/cache does so
// too). Its methods may be called at once.
type Hasher struct{ macs sync.Pool }

// NewHasher makes a Hasher; Keys of two Hashers have nothing in common.
func NewHasher() *Hasher {
	var secret [32]byte
	_, _ = rand.Read(secret[:]) // it ends the process rather than fail
	h := new(Hasher)
	h.macs.New = func() any { return hmac.New(sha256.New, secret[:]) }
	return h
}

// Key is the Key of a question of several parts. Each part is led by its
// length: "ab", "c" is another question than "a", "bc".
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
