package ipam

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"
	"unicode/utf8"
)

const (
	// maxFile bounds a lease's file, in bytes; without details it has about
	// 200.
	maxFile = 64 << 10
	// maxAddresses bounds the addresses of one lease.
	maxAddresses = 16
	// nameLen is the length of an owner's file's name, in hex digits. With
	// 160 bits a link's target is 50 bytes long: ext4 and f2fs keep up to
	// 59 in the inode, so that a link takes no block.
	nameLen = 40
)

// Lease is what one owner has.
type Lease struct {
	// Owner is whose it is, such as a container's ID and interface.
	Owner string `json:"owner"`
	// Key and Pod are those of the request.
	Key string `json:"key,omitempty"`
	Pod string `json:"pod,omitempty"`
	// Addresses are one for each range of the request, in their order, or
	// those that were wanted.
	Addresses []netip.Addr `json:"addresses"`
	// Boot is the boot ID of the boot that it was made in.
	Boot string `json:"boot"`
	// Time is when it was made, by a clock that may have been wrong.
	Time time.Time `json:"time"`
	// Detail is the caller's.
	Detail []byte `json:"detail,omitempty"`
}

// encode is the lease's file.
func (l Lease) encode() ([]byte, error) {
	data, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	if len(data) >= maxFile {
		return nil, fmt.Errorf("lease of %.80q would have %d bytes, and no more than %d are allowed: store less detail", l.Owner, len(data), maxFile)
	}
	return append(data, '\n'), nil
}

var errTorn = errors.New("file is no lease")

// decode reads the file that a name is of. What is torn, empty or of another
// boot or owner is no lease.
func decode(data []byte, name, boot string) (Lease, error) {
	var l Lease
	if len(data) > maxFile {
		return Lease{}, errTorn
	}
	if err := json.Unmarshal(data, &l); err != nil {
		return Lease{}, fmt.Errorf("%w: %w", errTorn, err)
	}
	if l.Boot != boot || nameOf(l.Owner) != name || checkAddresses(l.Addresses) != nil {
		return Lease{}, errTorn
	}
	return l, nil
}

func checkAddresses(list []netip.Addr) error {
	if len(list) == 0 || len(list) > maxAddresses {
		return fmt.Errorf("%d addresses: a lease has 1 to %d", len(list), maxAddresses)
	}
	for i, a := range list {
		if !a.IsValid() || a.Zone() != "" || a.Is4In6() || slices.Contains(list[:i], a) {
			return fmt.Errorf("address %q is not a plain one that is named once", a)
		}
	}
	return nil
}

// same says whether two are one lease, whatever became of its detail.
func (l Lease) same(m Lease) bool {
	return l.Owner == m.Owner && l.Time.Equal(m.Time) && slices.Equal(l.Addresses, m.Addresses)
}

// nameOf is the name of an owner's file. An owner is hostile text; its hash is
// a name.
func nameOf(owner string) string {
	sum := sha256.Sum256([]byte(owner))
	return hex.EncodeToString(sum[:nameLen/2])
}

func isName(s string) bool {
	if len(s) != nameLen {
		return false
	}
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// checkText refuses what JSON would change.
func checkText(what, s string) error {
	if !utf8.ValidString(s) {
		return fmt.Errorf("%s %.80q is not UTF-8", what, s)
	}
	return nil
}
