package nft

import (
	"fmt"
	"hash/fnv"
	"net/netip"

	"golang.org/x/sys/unix"
)

// layoutVersion is to be changed with the names and kinds of chains and maps:
// the table is then made anew. What rules are made of needs no new one.
const layoutVersion = 1

// The chains' names.
const (
	chainGuard       = "guard"
	chainPrerouting  = "prerouting"
	chainOutput      = "output"
	chainHostPorts   = "host-ports"
	chainPostrouting = "postrouting"
	chainLeaving     = "leaving"
)

// chain is how a chain is made, with its rules.
type chain struct {
	name     string
	kind     string // "filter" or "nat"; none has no hook and is jumped to
	hook     uint32
	priority int32
	rules    []*rule
}

// The networks with a meaning of their own.
var (
	loopback   = netip.MustParsePrefix("127.0.0.0/8")
	loopback6  = netip.MustParsePrefix("::1/128")
	multicast4 = netip.MustParsePrefix("224.0.0.0/4")
	multicast6 = netip.MustParsePrefix("ff00::/8")
)

// layout is all chains for a base that was checked. The first rule's comment
// tells what they were made of.
func (b Base) layout() []chain {
	all := []chain{
		{name: chainHostPorts, rules: hostPorts()},
		{name: chainLeaving, rules: b.leaving()},
		{name: chainGuard, kind: "filter", hook: unix.NF_INET_PRE_ROUTING, priority: -300, rules: guard()},
		{name: chainPrerouting, kind: "nat", hook: unix.NF_INET_PRE_ROUTING, priority: -100, rules: toLocal()},
		{name: chainOutput, kind: "nat", hook: unix.NF_INET_LOCAL_OUT, priority: -100, rules: fromHere()},
		{name: chainPostrouting, kind: "nat", hook: unix.NF_INET_POST_ROUTING, priority: 100, rules: b.postrouting()},
	}
	all[2].rules[0].comment = stamp(all)
	return all
}

// stamp is what the rules are known by, without reading them all.
func stamp(all []chain) string {
	h := fnv.New64a()
	for _, c := range all {
		fmt.Fprintf(h, "%s %s %d %d\n", c.name, c.kind, c.hook, c.priority)
		for _, r := range c.rules {
			h.Write(r.code)
			h.Write(userdata(commentOfRule, r.comment))
		}
	}
	for _, m := range portMaps {
		fmt.Fprintf(h, "%v\n", m.set())
	}
	return fmt.Sprintf("%s%016x", stampPrefix, h.Sum64())
}

var stampPrefix = fmt.Sprintf("rules %d-", layoutVersion)

// guard keeps others from what listens on 127.0.0.0/8 alone, which they reach
// once host ports have net.ipv4.conf.BRIDGE.route_localnet set (CVE-2020-8558).
// For IPv6 the kernel itself does.
func guard() []*rule {
	return []*rule{
		when("").notFrom("lo").destination(loopback).drop(),
		when("loopback addresses stay on this machine").notFrom("lo").source(loopback).drop(),
	}
}

// toLocal has what is for this machine looked up in the host ports.
func toLocal() []*rule {
	return []*rule{when("host ports").local().jump(chainHostPorts)}
}

// fromHere is the same for what this machine sends. What is sent from ::1 never
// leaves it: there is no route_localnet for IPv6.
func fromHere() []*rule {
	return append([]*rule{when("the kernel lets nobody else see ::1").destination(loopback6).back()}, toLocal()...)
}

func hostPorts() []*rule {
	rules := make([]*rule, 0, len(portMaps))
	for _, m := range portMaps {
		rules = append(rules, m.chosen())
	}
	return rules
}

// postrouting gives connections an address that their replies come back to.
func (b Base) postrouting() []*rule {
	var rules []*rule
	for _, p := range b.Pods {
		// The reply would go from pod to pod, past this machine's rules.
		rules = append(rules, when("from pod to pod by a host port").out(b.Bridge).source(p).redirected().masquerade())
	}
	rules = append(rules, when("from localhost by a host port").out(b.Bridge).source(loopback).redirected().masquerade())
	if !b.Masquerade {
		return rules
	}
	for _, p := range b.Pods {
		rules = append(rules, when("from pods").source(p).jump(chainLeaving))
	}
	return rules
}

// leaving masquerades all but what goes to networks that know the pods.
func (b Base) leaving() []*rule {
	if !b.Masquerade {
		return nil
	}
	var rules []*rule
	for _, p := range b.Pods {
		rules = append(rules, when("pods of this node").destination(p).back())
	}
	for _, p := range b.Direct {
		rules = append(rules, when("reached directly").destination(p).back())
	}
	return append(rules,
		when("multicast").destination(multicast4).back(),
		when("multicast").destination(multicast6).back(),
		when("").masquerade())
}
