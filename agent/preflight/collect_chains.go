package preflight

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// chainFamilies are the nftables families that see packets between pods and the
// uplinks, with their names in the nft program.
var chainFamilies = map[nftables.TableFamily]string{
	nftables.TableFamilyINet: "inet", nftables.TableFamilyIPv4: "ip", nftables.TableFamilyIPv6: "ip6",
}

// rulesTimeout bounds the time to read all chains and rules.
const rulesTimeout = 10 * time.Second

// ruleset reads the nftables rules of a network namespace.
type ruleset struct {
	conn   *nftables.Conn
	chains []*nftables.Chain
}

// droppingChains returns the chains in the forward hook that drop packets that none
// of their rules accept, by their policy or by their last rule. It omits tables
// with a rule that names the bridge: their author has considered the pods. It reads
// the network namespace of the calling thread.
func droppingChains(bridge string) (all []DroppingChain, err error) {
	limit := func(c *netlink.Conn) error { return c.SetDeadline(time.Now().Add(rulesTimeout)) }
	r := ruleset{}
	if r.conn, err = nftables.New(nftables.AsLasting(), nftables.WithSockOptions(limit)); err != nil {
		return nil, err
	}
	defer func() { _ = r.conn.CloseLasting() }()
	if r.chains, err = r.conn.ListChains(); err != nil {
		return nil, fmt.Errorf("list nftables chains: %w", err)
	}
	for _, c := range r.chains {
		drops, err := r.drops(c)
		if err == nil && drops {
			var named bool
			named, err = r.names(c.Table, []byte(bridge))
			drops = !named
		}
		if err != nil {
			return nil, fmt.Errorf("list nftables rules: %w", err)
		}
		if drops {
			all = append(all, DroppingChain{chainFamilies[c.Table.Family], c.Table.Name, c.Name})
		}
	}
	slices.SortFunc(all, func(a, b DroppingChain) int {
		return cmp.Or(cmp.Compare(a.Family, b.Family), cmp.Compare(a.Table, b.Table), cmp.Compare(a.Name, b.Name))
	})
	return all, nil
}

// drops reports whether a chain in the forward hook drops packets that none of its
// rules accept.
func (r *ruleset) drops(c *nftables.Chain) (bool, error) {
	if c.Table == nil || chainFamilies[c.Table.Family] == "" || c.Hooknum == nil || *c.Hooknum != unix.NF_INET_FORWARD {
		return false, nil
	}
	if c.Policy != nil && *c.Policy == nftables.ChainPolicyDrop {
		return true, nil
	}
	rules, err := r.conn.GetRules(c.Table, c)
	return err == nil && len(rules) > 0 && dropsAll(rules[len(rules)-1]), err
}

// names reports whether a rule of a table names the bridge.
func (r *ruleset) names(table *nftables.Table, bridge []byte) (bool, error) {
	for _, c := range r.chains {
		if c.Table == nil || *c.Table != *table {
			continue
		}
		rules, err := r.conn.GetRules(table, c)
		if err != nil || slices.ContainsFunc(rules, func(rule *nftables.Rule) bool { return namesBridge(rule, bridge) }) {
			return err == nil, err
		}
	}
	return false, nil
}

func namesBridge(rule *nftables.Rule, bridge []byte) bool {
	for _, e := range rule.Exprs {
		if code, err := expr.Marshal(byte(rule.Table.Family), e); err == nil && bytes.Contains(code, bridge) {
			return true
		}
	}
	return false
}

// dropsAll reports whether a rule drops or rejects all packets.
func dropsAll(rule *nftables.Rule) bool {
	drops := false
	for _, e := range rule.Exprs {
		switch e := e.(type) {
		case *expr.Counter, *expr.Log:
		case *expr.Reject:
			drops = true
		case *expr.Verdict:
			drops = e.Kind == expr.VerdictDrop
		default:
			return false // a condition, mostly
		}
	}
	return drops
}
