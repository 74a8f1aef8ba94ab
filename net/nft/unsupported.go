package nft

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/net/netlink"
)

// Unsupported says that the kernel lacks something that the table needs.
type Unsupported struct {
	// What is the likely module, such as nft_masq, or several.
	What string
	// Err is the kernel's error.
	Err error
}

// Error names the module and the remedy.
func (e *Unsupported) Error() string {
	return fmt.Sprintf("the kernel has no %s: load it (modprobe -a %s) or use a kernel that has it (%v)",
		e.What, strings.ReplaceAll(e.What, ",", ""), e.Err)
}

// Unwrap is the kernel's error.
func (e *Unsupported) Unwrap() error { return e.Err }

// modules are those of expressions that are not part of nf_tables itself.
var modules = map[string]string{
	"ct":     "nft_ct",
	"fib":    "nft_fib_inet",
	"masq":   "nft_masq",
	"nat":    "nft_nat",
	"numgen": "nft_numgen",
	"reject": "nft_reject_inet",
}

// explain makes *Unsupported of what the kernel says where a module is missing.
func (t *Table) explain(err error) error {
	var said *netlink.Error
	if !errors.As(err, &said) {
		return err
	}
	what := command{kind: unix.NFT_MSG_NEWTABLE} // nothing at all is understood
	if said.Index < len(t.commands) {
		what = t.commands[said.Index]
	}
	if missing := missing(what, said.Errno); missing != "" {
		return &Unsupported{What: missing, Err: err}
	}
	return err
}

// unasked makes *Unsupported of what the kernel says to a question where there
// is nobody to answer it: to one of a subsystem that it does not know it says
// that the message is invalid (nfnetlink_rcv_msg in net/netfilter/nfnetlink.c).
func unasked(err error) error {
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		return &Unsupported{What: "nf_tables", Err: err}
	}
	return err
}

// missing names what the kernel lacks if it answers a command so, "" if that is
// not what it says.
func missing(c command, errno unix.Errno) string {
	absent := errno == unix.EPROTONOSUPPORT || errno == unix.EAFNOSUPPORT || errno == unix.EOPNOTSUPP
	switch c.kind {
	case unix.NFT_MSG_NEWTABLE:
		if absent {
			return "nf_tables"
		}
	case unix.NFT_MSG_NEWCHAIN:
		if absent || errno == unix.ENOENT {
			return "nft_chain_nat, nf_nat"
		}
	case unix.NFT_MSG_NEWRULE:
		if absent || errno == unix.ENOENT {
			return needs(c.code)
		}
	}
	return ""
}

// needs are the modules of a rule's expressions.
func needs(code []byte) string {
	var all []string
	for _, element := range netlink.Attributes(code) {
		name := netlink.Text(netlink.Attribute(element, unix.NFTA_EXPR_NAME))
		if m := modules[name]; m != "" && !slices.Contains(all, m) {
			all = append(all, m)
		}
	}
	if all == nil {
		return "nf_tables"
	}
	return strings.Join(all, ", ")
}
