// Package nft manages the nftables table inet tinylet of one network namespace.
// Its rules masquerade what leaves the pod network, and redirect host ports to pods
// and addresses of services to endpoints. The package changes no other table
// except bridge tinylet (Senders), and runs no program.
//
// Each change is one transaction of the kernel: the rules before or after it apply to a
// packet, and a process that is killed leaves no part of a transaction. Several processes
// may change the table at the same time: a transaction that depends on what was read
// before names the generation that was read (NFNL_BATCH_GENID), and the kernel refuses it
// if there was another transaction since then.
//
// Tables, chains, sets, elements and expressions are the types of
// github.com/google/nftables, and expressions have its encoding. Requests use a socket of
// this package (conn), because the library's Conn lacks what is needed:
//
//   - A transaction of Conn names no generation, and its errors do not show which
//     message was refused. Elements are added without NLM_F_EXCL, more than
//     64 KiB of them are truncated, and tables have no comment.
//   - Conn.GetRules leaves out expressions that it has no type for, and lists one
//     chain. GetSets and GetSetElements hide the errno, and panic on user data
//     that any process with CAP_NET_ADMIN can write (userdata.Get). A listing that
//     the kernel reports as interrupted is not repeated.
package nft

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// tableName is the name of the table in the families inet and bridge.
const tableName = "tinylet"

// tableComment is listed with the table.
const tableComment = "networks of pods: tinylet writes this table and mends what is changed by hand"

// tableUserdata is NFTA_TABLE_USERDATA, which golang.org/x/sys/unix lacks.
// Kernels before Linux 5.10 ignore it.
const tableUserdata = 6

// ErrNoTable means that the table does not exist. Table.Ensure creates it. It is also the
// error for the table of Senders. Errors that wrap it name the table.
var ErrNoTable = errors.New("does not exist")

// Table is the table inet tinylet of a network namespace. The table need not
// exist: Ensure creates it. The methods block on the kernel only, and must be
// called by one goroutine at a time. Several Tables of one namespace may be used
// at the same time, by several processes too.
type Table struct {
	conn     *conn
	family   nftables.TableFamily // inet or bridge
	services *services            // as this Table wrote them last, nil if unknown
}

// Open opens the table in the network namespace of the calling thread. It does
// not check whether the table exists. On a kernel without nfnetlink the error is
// *Unsupported; a kernel without nf_tables alone is found by the first request.
func Open() (*Table, error) { return opened(dial()) }

func opened(c *conn, err error) (*Table, error) {
	if errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EAFNOSUPPORT) {
		return nil, &Unsupported{What: "nf_tables", Err: err} // its configuration selects nfnetlink
	}
	if err != nil {
		return nil, fmt.Errorf("open nftables: %w", err)
	}
	return &Table{conn: c, family: nftables.TableFamilyINet}, nil
}

// name returns the family and the name of the table.
func (t *Table) name() string {
	if t.family == nftables.TableFamilyBridge {
		return "bridge " + tableName
	}
	return "inet " + tableName
}

// noTable returns ErrNoTable for an ENOENT, unless the kernel lacks a module.
func (t *Table) noTable(err error) error {
	if errors.Is(err, unix.ENOENT) && !errors.As(err, new(*Unsupported)) {
		return fmt.Errorf("nftables table %s %w", t.name(), ErrNoTable)
	}
	return err
}

// Close closes the socket. The table stays as it is.
func (t *Table) Close() error { return t.conn.socket.Close() }

// Delete deletes the table with all that it contains. It returns nil if the table
// does not exist.
func (t *Table) Delete() error {
	t.services = nil
	b := t.begin(0)
	b.deleteTable()
	if err := ignoreAbsent(t.commit(b)); err != nil {
		return fmt.Errorf("delete nftables table %s: %w", t.name(), err)
	}
	return nil
}

// newTable adds a table with a comment.
func (b *batch) newTable(comment string) {
	b.add(unix.NFT_MSG_NEWTABLE, netlink.Create, text(unix.NFTA_TABLE_NAME, tableName),
		number(unix.NFTA_TABLE_FLAGS, 0), bytesOf(tableUserdata, commentData(commentOfTable, comment)))
}

func (b *batch) deleteTable() {
	b.add(unix.NFT_MSG_DELTABLE, 0, text(unix.NFTA_TABLE_NAME, tableName))
}

// list returns the attributes of the objects of a kind in the table that the attributes
// from select.
func (t *Table) list(kind uint16, flags netlink.HeaderFlags, from ...netlink.Attribute) (all []attributes, err error) {
	request := message(unix.NFNL_SUBSYS_NFTABLES, kind, flags, t.family, 0, from...)
	err = t.conn.dump(request, func() { all = nil }, func(payload []byte) {
		// Of some kinds the kernel lists the objects of all tables. The table's name
		// has one number in all kinds.
		if a := attributesOf(payload); a.text(unix.NFTA_RULE_TABLE) == tableName {
			all = append(all, bytes.Clone(a))
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list nftables objects: %w", unanswered(err))
	}
	return all, nil
}

// ignoreAbsent returns nil for ENOENT, the error of a list of a table that does not exist.
func ignoreAbsent(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// chains lists the chains of the table.
func (t *Table) chains() ([]attributes, error) { return t.list(unix.NFT_MSG_GETCHAIN, netlink.Dump) }
