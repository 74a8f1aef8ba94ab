// Command rules prints the contents of the nftables table inet tinylet: a line for
// each chain, each set, and each element of a set by its key. Tests run it on
// boards, which do not have the nft program.
package main

import (
	"encoding/hex"
	"fmt"
	"os"
	"slices"

	"github.com/google/nftables"
)

var table = &nftables.Table{Name: "tinylet", Family: nftables.TableFamilyINet}

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
	conn, err := nftables.New()
	if err != nil {
		return nil, err
	}
	chains, err := conn.ListChainsOfTableFamily(table.Family)
	if err != nil {
		return nil, fmt.Errorf("list chains: %w", err)
	}
	for _, c := range chains {
		if c.Table.Name == table.Name {
			lines = append(lines, "chain "+c.Name)
		}
	}
	sets, err := conn.GetSets(table)
	if err != nil {
		return nil, fmt.Errorf("list sets: %w", err)
	}
	for _, s := range sets {
		lines = append(lines, "set "+s.Name)
		elements, err := conn.GetSetElements(s)
		if err != nil {
			return nil, fmt.Errorf("list elements of %s: %w", s.Name, err)
		}
		for _, e := range elements {
			lines = append(lines, "element "+s.Name+" "+hex.EncodeToString(e.Key))
		}
	}
	slices.Sort(lines)
	return lines, nil
}
