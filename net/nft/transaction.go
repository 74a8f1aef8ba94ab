package nft

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// transactionTries bounds how often a transaction is repeated because another
// transaction changed the rules after they were read. Each time another transaction has
// succeeded, so that the limit bounds the number of simultaneous writers.
const transactionTries = 256

// errBusy means that other transactions came first each time.
var errBusy = errors.New("nftables rules keep changing")

// batch is the messages of one transaction.
type batch struct {
	family   nftables.TableFamily
	messages []netlink.Message
	sets     uint32 // the number of sets that it adds, each with a number as its ID
}

// begin starts a transaction. The kernel refuses it (ERESTART) if the rules have another
// generation by then; 0 means any.
func (t *Table) begin(generation uint32) *batch {
	begin := message(0, unix.NFNL_MSG_BATCH_BEGIN, 0, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES)
	if generation != 0 {
		begin.Data = append(begin.Data, encode(number(unix.NFNL_BATCH_GENID, generation))...)
	}
	return &batch{family: t.family, messages: []netlink.Message{begin}}
}

// add adds one change to the transaction.
func (b *batch) add(kind uint16, flags netlink.HeaderFlags, all ...netlink.Attribute) {
	b.messages = append(b.messages, message(unix.NFNL_SUBSYS_NFTABLES, kind, flags, b.family, 0, all...))
}

// empty reports whether the transaction changes nothing.
func (b *batch) empty() bool { return len(b.messages) == 1 }

// commit sends the transaction. Only the last change requests an acknowledgement, because
// errors of earlier changes are received before it.
func (t *Table) commit(b *batch) error {
	b.messages[len(b.messages)-1].Header.Flags |= netlink.Acknowledge
	end := message(0, unix.NFNL_MSG_BATCH_END, 0, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES)
	return explain(t.conn.execute(append(b.messages, end)))
}

// retry calls try with the generation of the rules until it returns another error than
// ERESTART, transactionTries times at most. ENOENT may be about objects that another
// transaction replaced meanwhile, so that retry then also calls try again if the
// generation has changed.
func (t *Table) retry(try func(generation uint32) error) error {
	for range transactionTries {
		generation, err := t.generation()
		if err != nil {
			return err
		}
		err = try(generation)
		if errors.Is(err, unix.ENOENT) {
			err = cmp.Or(t.unchanged(generation), err)
		}
		if !errors.Is(err, unix.ERESTART) {
			return err
		}
	}
	return errBusy
}

// unchanged returns ERESTART if the rules no longer have the generation: what was read
// since then may be inconsistent.
func (t *Table) unchanged(generation uint32) error {
	now, err := t.generation()
	if err == nil && now != generation {
		err = unix.ERESTART
	}
	return err
}

// generation returns the generation of the rules of all tables.
func (t *Table) generation() (generation uint32, err error) {
	request := message(unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_GETGEN, 0, unix.AF_UNSPEC, 0)
	err = t.conn.dump(request, nil, func(payload []byte) {
		generation = attributesOf(payload).number(unix.NFTA_GEN_ID)
	})
	if err != nil {
		return 0, fmt.Errorf("read the generation of nftables: %w", unanswered(err))
	}
	return generation, nil
}

// Unsupported means that the kernel lacks what the table needs.
type Unsupported struct {
	// What is the likely module, such as nft_masq, or several.
	What string
	// Err is the kernel's error.
	Err error
}

// Error returns the modules and the remedy.
func (e *Unsupported) Error() string {
	return fmt.Sprintf("the kernel has no %s: load it (modprobe -a %s) or use a kernel that has it (%v)",
		e.What, strings.ReplaceAll(e.What, ",", ""), e.Err)
}

// Unwrap returns the kernel's error.
func (e *Unsupported) Unwrap() error { return e.Err }

// modules are those of the expressions that nf_tables itself does not have.
var modules = map[string]string{
	"ct":     "nft_ct",
	"fib":    "nft_fib_inet",
	"masq":   "nft_masq",
	"nat":    "nft_nat",
	"numgen": "nft_numgen",
	"reject": "nft_reject_inet",
}

// explain returns *Unsupported for the error of a transaction if a module is missing.
func explain(err error) error {
	var refused *messageError
	if !errors.As(err, &refused) {
		return err
	}
	if what := missing(refused.message, refused.errno); what != "" {
		return &Unsupported{What: what, Err: err}
	}
	return err
}

// unanswered returns *Unsupported for the error of a list on a kernel without nf_tables:
// nfnetlink returns EINVAL for a message of a subsystem that it does not have
// (nfnetlink_rcv_msg in net/netfilter/nfnetlink.c).
func unanswered(err error) error {
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		return &Unsupported{What: "nf_tables", Err: err}
	}
	return err
}

// missing returns the likely modules that the kernel lacks if it refuses a message with an
// errno, "" if the errno has another reason.
func missing(m netlink.Message, errno unix.Errno) string {
	absent := errno == unix.EPROTONOSUPPORT || errno == unix.EAFNOSUPPORT || errno == unix.EOPNOTSUPP
	switch uint16(m.Header.Type) {
	case unix.NFNL_MSG_BATCH_BEGIN, unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWTABLE:
		if absent {
			return "nf_tables"
		}
	case unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWCHAIN:
		if absent || errno == unix.ENOENT {
			return "nft_chain_nat, nf_nat"
		}
	case unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWRULE:
		if absent || errno == unix.ENOENT {
			return neededBy(attributesOf(m.Data).value(unix.NFTA_RULE_EXPRESSIONS))
		}
	}
	return ""
}

// neededBy returns the modules of a rule's expressions.
func neededBy(expressions attributes) string {
	var all []string
	for _, e := range expressions.each() {
		if m := modules[e.text(unix.NFTA_EXPR_NAME)]; m != "" && !slices.Contains(all, m) {
			all = append(all, m)
		}
	}
	if all == nil {
		return "nf_tables"
	}
	return strings.Join(all, ", ")
}
