package ipam

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	// maxFile is the maximum size of a lease's file in bytes. A file without a detail has
	// about 200.
	maxFile = 64 << 10
	// maxAddresses is the maximum number of addresses of a lease.
	maxAddresses = 16
	// nameLen is the length of the name of an owner's file, in hexadecimal digits. With
	// 160 bits the target of a link has 50 bytes. ext4 and f2fs store up to 59 bytes in
	// the inode, so that a link takes no block.
	nameLen = 40
)

// Lease is the lease of one owner.
type Lease struct {
	// Owner identifies the owner, such as a container ID with an interface name.
	Owner string `json:"owner"`
	// Key and Pod are those of the request.
	Key string `json:"key,omitempty"`
	Pod string `json:"pod,omitempty"`
	// Addresses has one address for each range of the request, in the order of the
	// ranges, or the requested addresses.
	Addresses []netip.Addr `json:"addresses"`
	// Boot is the ID of the boot in which the lease was created.
	Boot string `json:"boot"`
	// Time is the time of creation. The clock may have been wrong.
	Time time.Time `json:"time"`
	// Detail is data of the caller.
	Detail []byte `json:"detail,omitempty"`
}

// encode returns the content of the lease's file.
func (l Lease) encode() ([]byte, error) {
	data, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	if len(data) >= maxFile {
		return nil, fmt.Errorf("lease of %.80q has %d bytes, more than %d: store less detail", l.Owner, len(data), maxFile)
	}
	return append(data, '\n'), nil
}

// errInvalid means that a file contains no lease.
var errInvalid = errors.New("file contains no lease")

// decode parses the file with a name. The error wraps errInvalid if the file is partial
// or empty, or if its lease has another boot or owner.
func decode(data []byte, name, boot string) (Lease, error) {
	var l Lease
	if len(data) > maxFile {
		return Lease{}, errInvalid
	}
	if err := json.Unmarshal(data, &l); err != nil {
		return Lease{}, fmt.Errorf("%w: %w", errInvalid, err)
	}
	if l.Boot != boot || fileName(l.Owner) != name || checkAddresses(l.Addresses) != nil {
		return Lease{}, errInvalid
	}
	return l, nil
}

func checkAddresses(list []netip.Addr) error {
	if len(list) == 0 || len(list) > maxAddresses {
		return fmt.Errorf("%d addresses: a lease has 1 to %d", len(list), maxAddresses)
	}
	for i, a := range list {
		if !a.IsValid() || a.Zone() != "" || a.Is4In6() || slices.Contains(list[:i], a) {
			return fmt.Errorf("address %q is invalid, has a zone, is IPv4-mapped or is repeated", a)
		}
	}
	return nil
}

// same reports whether two leases are equal except for their details.
func (l Lease) same(m Lease) bool {
	return l.Owner == m.Owner && l.Time.Equal(m.Time) && slices.Equal(l.Addresses, m.Addresses)
}

// fileName returns the name of an owner's file. It is a hash, because an owner may be any
// text, also a malicious one.
func fileName(owner string) string {
	sum := sha256.Sum256([]byte(owner))
	return hex.EncodeToString(sum[:nameLen/2])
}

func isFileName(s string) bool {
	return len(s) == nameLen && strings.Trim(s, "0123456789abcdef") == ""
}

// checkUTF8 rejects text that encoding to JSON would change.
func checkUTF8(what, s string) error {
	if !utf8.ValidString(s) {
		return fmt.Errorf("%s %.80q is not UTF-8", what, s)
	}
	return nil
}
