// Command rules prints what the kernel has in the table inet tinylet: a line
// for each chain, each set, and each element of a set by its key. Tests read it
// on boards, which have no program for it.
package main

import (
	"encoding/hex"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/net/netlink"
)

const table = "tinylet"

func main() {
	lines, err := rules()
	if err != nil {
		fmt.Fprintln(os.Stderr, "rules:", err)
		os.Exit(1)
	}
	for _, line := range lines {
		fmt.Println(line)
	}
}

func rules() (lines []string, err error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	var sets []string
	err = list(conn, unix.NFT_MSG_GETCHAIN, "", func(a []byte) {
		lines = append(lines, "chain "+netlink.Text(netlink.Attribute(a, unix.NFTA_CHAIN_NAME)))
	})
	if err != nil {
		return nil, fmt.Errorf("list chains: %w", err)
	}
	err = list(conn, unix.NFT_MSG_GETSET, "", func(a []byte) {
		sets = append(sets, netlink.Text(netlink.Attribute(a, unix.NFTA_SET_NAME)))
	})
	if err != nil {
		return nil, fmt.Errorf("list sets: %w", err)
	}
	for _, set := range sets {
		lines = append(lines, "set "+set)
		err := list(conn, unix.NFT_MSG_GETSETELEM, set, func(a []byte) {
			for _, element := range netlink.Attributes(netlink.Attribute(a, unix.NFTA_SET_ELEM_LIST_ELEMENTS)) {
				key := netlink.Attribute(netlink.Attribute(element, unix.NFTA_SET_ELEM_KEY), unix.NFTA_DATA_VALUE)
				lines = append(lines, "element "+set+" "+hex.EncodeToString(key))
			}
		})
		if err != nil {
			return nil, fmt.Errorf("list elements of %s: %w", set, err)
		}
	}
	slices.Sort(lines)
	return lines, nil
}

// list calls each with what the kernel has of a kind in the table, or in a set
// of it. The attribute with the table's name is 1 in all kinds, that with the
// set's 2 where elements are listed.
func list(conn *netlink.Conn, kind uint16, set string, each func(attributes []byte)) error {
	var b netlink.Builder
	b.Begin(unix.NFNL_SUBSYS_NFTABLES<<8|kind, unix.NLM_F_DUMP)
	b.Raw([]byte{unix.NFPROTO_INET, unix.NFNETLINK_V0, 0, 0})
	b.String(unix.NFTA_CHAIN_TABLE, table)
	if set != "" {
		b.String(unix.NFTA_SET_ELEM_LIST_SET, set)
	}
	return conn.Dump(&b, nil, func(_ uint16, payload []byte) error {
		const header = 4 // struct nfgenmsg
		if a := payload[min(header, len(payload)):]; netlink.Text(netlink.Attribute(a, unix.NFTA_CHAIN_TABLE)) == table {
			each(a)
		}
		return nil
	})
}
