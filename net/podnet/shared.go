package podnet

import (
	"errors"
	"fmt"
	"os"

	"github.com/tinylet/tinylet/net/link"
	"github.com/tinylet/tinylet/net/nft"
)

// Ensure creates the state that all pods share: the bridge with its addresses, the
// sysctls, the tables of rules, and the host ports and source addresses of all pods that
// have a lease. It repairs changes of others, except for the interfaces of pods. It is
// idempotent and lists everything: it is meant for a start, and for after a change.
func (n *Network) Ensure() error {
	host, err := link.Open()
	if err != nil {
		return err
	}
	defer host.Close()
	return n.ensureHost(host, func(table *nft.Table) error {
		err := n.restrictAll()
		n.restricted.Store(err == nil)
		return errors.Join(n.ensureTable(table), err)
	})
}

// ensureHost creates the bridge, the rules and the sysctls. The rules come before the
// sysctls that are unsafe without them. The bridge's addresses come last: if they
// exist, later calls of ready do nothing (isReady).
func (n *Network) ensureHost(host *link.Handle, rules func(*nft.Table) error) error {
	bridge := n.cfg.bridge()
	if err := host.CreateBridge(bridge); err != nil {
		return err
	}
	if err := n.ensureGuarded(rules); err != nil {
		return err
	}
	n.did("guarded")
	if err := n.settings(); err != nil {
		return err
	}
	_, err := host.EnsureBridge(bridge)
	return err
}

// ensureGuarded creates the rules. Until they exist, and if they cannot be created,
// nothing is routed to the addresses that they protect.
func (n *Network) ensureGuarded(rules func(*nft.Table) error) error {
	table, err := nft.Open()
	if err != nil {
		return errors.Join(err, closeLocalhost(n.cfg.Bridge))
	}
	defer table.Close()
	if err := closeUnguarded(table, n.cfg.Bridge); err != nil {
		return err
	}
	if err := rules(table); err != nil {
		return errors.Join(err, closeUnguarded(table, n.cfg.Bridge))
	}
	return nil
}

// closeUnguarded disables routing to 127.0.0.0/8 if the rules do not protect it, or if
// that is unknown.
func closeUnguarded(table *nft.Table, bridge string) error {
	if guarded, err := table.Guarded(); err == nil && guarded {
		return nil
	}
	return closeLocalhost(bridge)
}

func (n *Network) ensureTable(table *nft.Table) error {
	if err := n.ensureRules(table); err != nil {
		return err
	}
	base := n.cfg.base()
	err := table.Verify(base)
	if nft.Differs(err) {
		err = n.withPorts(table, func(ports func() ([]nft.Port, error)) error { return table.Repair(base, ports) })
	}
	if err != nil {
		return err
	}
	return n.restorePorts(table)
}

// settings sets the sysctls, in the network namespace of the calling thread: forwarding,
// route_localnet and accept_ra.
func (n *Network) settings() error {
	v4, v6 := n.cfg.families()
	if err := n.openLocalhost(); err != nil {
		return err
	}
	if v6 {
		if err := n.forwardIPv6(); err != nil {
			return err
		}
	}
	if v4 {
		if err := link.SetSysctl("net/ipv4/ip_forward", "1"); err != nil {
			return err
		}
	}
	// The host must accept no router advertisements of pods.
	return ignoreAbsent(link.SetSysctl(conf6+"/"+n.cfg.Bridge+"/accept_ra", "0"))
}

// routeLocalnet is the sysctl with which the kernel routes to 127.0.0.0/8 what arrives
// on the bridge.
func routeLocalnet(bridge string) string { return "net/ipv4/conf/" + bridge + "/route_localnet" }

// openLocalhost enables routeLocalnet for host ports on 127.0.0.1. It is called after the
// rules exist that drop what others send there (CVE-2020-8558).
func (n *Network) openLocalhost() error {
	if v4, _ := n.cfg.families(); !v4 {
		return nil
	}
	return link.SetSysctl(routeLocalnet(n.cfg.Bridge), "1")
}

// closeLocalhost disables routeLocalnet. It returns nil if the bridge does not exist.
func closeLocalhost(bridge string) error {
	return ignoreAbsent(link.SetSysctl(routeLocalnet(bridge), "0"))
}

const conf6 = "net/ipv6/conf"

// forwardIPv6 enables forwarding of IPv6. A host that forwards does not accept router
// advertisements, and would lose its default route. So interfaces that accept them are
// set to accept_ra=2 (Documentation/networking/ip-sysctl.rst).
func (n *Network) forwardIPv6() error {
	const forwarding = conf6 + "/all/forwarding"
	have, err := link.Sysctl(forwarding)
	if err != nil {
		return fmt.Errorf("enable IPv6 forwarding: %w", err)
	}
	if have == "1" {
		return nil
	}
	entries, err := os.ReadDir("/proc/sys/" + conf6)
	if err != nil {
		return fmt.Errorf("enable IPv6 forwarding: %w", err)
	}
	for _, e := range entries {
		path := conf6 + "/" + e.Name() + "/accept_ra"
		if have, err := link.Sysctl(path); err != nil || have != "1" || e.Name() == "all" || e.Name() == n.cfg.Bridge {
			continue
		}
		if err := link.SetSysctl(path, "2"); err != nil {
			return err
		}
	}
	return link.SetSysctl(forwarding, "1")
}
