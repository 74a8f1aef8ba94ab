package nft

import "golang.org/x/sys/unix"

// outer is a chain of external addresses and ports of this machine. Where the
// endpoint may be on another node, connections are masqueraded, for the reply to
// come back here.
type outer struct {
	all string // the chain that leads to all endpoints
	// apart has others be led elsewhere than this machine and its pods, who
	// come by the bridge.
	apart  bool
	bridge string
	others target
}

// write puts the chain's rules into the transaction.
func (o outer) write(t *Table, name string) {
	if !o.apart {
		t.newRule(name, when("").mark().on(o.all))
		return
	}
	if o.bridge != "" {
		t.newRule(name, when("pods of this node").from(o.bridge).on(o.all))
	}
	t.newRule(name, when("this machine").localSource().mark().on(o.all))
	t.newRule(name, when("").verdict(o.others.code, o.others.chain))
}

// from matches what has come in by an interface.
func (r *rule) from(name string) *rule {
	return r.meta(unix.NFT_META_IIFNAME, 0).equal(interfaceName(name))
}
