package nft

import (
	"crypto/sha256"
	"encoding/hex"
)

// ownerLen bounds an owner in bytes: what is a comment for the nft program.
const ownerLen = 120

// KeptOwner is the form in which the kernel has an owner, and by which owners
// are compared: the same if it is of printable ASCII without quotes and
// backslashes, and of at most 120 bytes. Any other has its start, and a number
// made of all of it.
func KeptOwner(owner string) string {
	text := []byte(owner[:min(len(owner), ownerLen)])
	changed := len(owner) > ownerLen
	for i, c := range text {
		if c < ' ' || c > '~' || c == '"' || c == '\\' {
			text[i], changed = '?', true
		}
	}
	if !changed {
		return owner
	}
	digest := sha256.Sum256([]byte(owner))
	sum := "~" + hex.EncodeToString(digest[:16])
	return string(text[:min(len(text), ownerLen-len(sum))]) + sum
}
