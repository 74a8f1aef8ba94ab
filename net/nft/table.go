package nft

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/net/netlink"
)

// tableName is that of the table, in the family inet.
const tableName = "tinylet"

// tableComment is shown to whoever lists the table.
const tableComment = "networks of pods: tinylet writes this table and mends what is changed by hand"

// ErrNoTable says that the table is not there: Ensure makes it.
var ErrNoTable = errors.New("nftables table inet " + tableName + " is not there")

// Table is the table inet tinylet of a network namespace. It need not be there:
// Ensure makes it. Its methods block on the kernel alone, and are for one
// goroutine at a time; several Tables of a namespace may be used at once, by
// several processes too.
type Table struct {
	conn     *netlink.Conn
	family   uint8 // NFPROTO_INET or NFPROTO_BRIDGE
	batch    netlink.Builder
	commands []command
	sets     uint32    // made in the transaction, each with its number
	services *services // as they were written last, nil if that is not known
}

// Open opens the table in the network namespace of the calling thread. It says
// nothing of whether the table is there. A kernel without nftables gives
// *Unsupported.
func Open() (*Table, error) { return opened(netlink.Dial(unix.NETLINK_NETFILTER)) }

// OpenIn opens the table in the network namespace that is open as ns, which
// may be closed afterwards.
func OpenIn(ns *os.File) (*Table, error) {
	return opened(netlink.DialIn(unix.NETLINK_NETFILTER, ns))
}

func opened(conn *netlink.Conn, err error) (*Table, error) {
	if errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EAFNOSUPPORT) {
		return nil, &Unsupported{What: "nf_tables", Err: err} // which has nfnetlink built as well
	}
	if err != nil {
		return nil, fmt.Errorf("open nftables: %w", err)
	}
	return &Table{conn: conn, family: unix.NFPROTO_INET}, nil
}

// Close closes the socket. The table stays as it is.
func (t *Table) Close() error { return t.conn.Close() }

// Delete removes the table with everything in it. It is nil if there is none.
func (t *Table) Delete() error {
	t.services = nil
	t.begin(0)
	t.command(unix.NFT_MSG_DELTABLE, 0)
	t.batch.String(unix.NFTA_TABLE_NAME, tableName)
	err := t.commit()
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete nftables table inet %s: %w", tableName, err)
	}
	return nil
}
