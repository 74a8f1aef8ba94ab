package nft

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Base is what the pods' network looks like on this node.
type Base struct {
	// Bridge is the pods' bridge.
	Bridge string
	// Pods are this node's pod networks: of IPv4, IPv6, or both.
	Pods []netip.Prefix
	// Direct are destinations that pods reach by their own addresses, beside
	// Pods and multicast: other nodes' pod networks where these are routed.
	Direct []netip.Prefix
	// Masquerade gives what pods send elsewhere the node's address.
	Masquerade bool
}

// checked is the base in the form that the rules are made of: in order, no
// network twice.
func (b Base) checked() (Base, error) {
	if !validInterface(b.Bridge) {
		return b, fmt.Errorf("bridge %.40q is no name of an interface", b.Bridge)
	}
	if len(b.Pods) == 0 {
		return b, errors.New("there is no pod network")
	}
	var err error
	if b.Pods, err = networks(b.Pods); err != nil {
		return b, fmt.Errorf("pod networks: %w", err)
	}
	if b.Direct, err = networks(b.Direct); err != nil {
		return b, fmt.Errorf("networks without masquerade: %w", err)
	}
	return b, nil
}

// validInterface says whether the kernel takes a name (dev_valid_name in
// net/core/dev.c).
func validInterface(name string) bool {
	return name != "" && len(name) < unix.IFNAMSIZ && name != "." && name != ".." &&
		!strings.ContainsAny(name, "/: \t\n\v\f\r\x00")
}

// networks sorts networks, and leaves out those that lie in others.
func networks(all []netip.Prefix) ([]netip.Prefix, error) {
	sorted := make([]netip.Prefix, 0, len(all))
	for _, p := range all {
		if !p.IsValid() || p.Addr().Is4In6() {
			return nil, fmt.Errorf("%s is no network", p)
		}
		sorted = append(sorted, p.Masked())
	}
	slices.SortFunc(sorted, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), a.Bits()-b.Bits())
	})
	// What holds a network is smaller and before it.
	kept := sorted[:0]
	for _, p := range sorted {
		if n := len(kept); n == 0 || !kept[n-1].Contains(p.Addr()) {
			kept = append(kept, p)
		}
	}
	return kept, nil
}
