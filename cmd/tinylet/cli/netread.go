package cli

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/network"
	"github.com/tinylet/tinylet/net/cni"
	"github.com/tinylet/tinylet/net/link"
	"github.com/tinylet/tinylet/net/nft"
	"github.com/tinylet/tinylet/net/podnet"
)

// readNet reads the pod network of the calling thread's network namespace. leases is
// the directory of the leases, unless the configuration names one.
func readNet(folder, leases string) (NetDocument, error) {
	doc := NetDocument{ConfigFolder: folder, Pods: []PodNetDocument{}}
	c, err := doc.configuration(folder)
	if err != nil {
		return doc, err
	}
	if c.StateDir == "" {
		c.StateDir = leases
	}
	host, err := link.Open()
	if err != nil {
		return doc, err
	}
	defer host.Close()
	table, err := nft.Open()
	var unsupported *nft.Unsupported
	if err != nil && !errors.As(err, &unsupported) {
		return doc, err
	}
	if table != nil {
		defer table.Close()
	}
	return doc, doc.kernel(c, host, table, unsupported)
}

// configuration finds the configuration that the runtime uses, and returns tinylet's
// own. StateDir is "" if the latter does not exist.
func (d *NetDocument) configuration(folder string) (cni.Config, error) {
	c := cni.Config{Type: cni.Type, Bridge: cni.DefaultBridge}
	names, err := network.ConfigNames(folder)
	if err != nil {
		return c, err
	}
	read, ours, err := network.OwnConfig(folder)
	if err != nil {
		return c, err
	}
	mine := ours && read.Name != "" // it could be parsed
	if mine {
		c = read
	}
	if len(names) > 0 {
		d.ConfigFile = filepath.Join(folder, names[0])
	}
	switch {
	case len(names) == 0 || ours && !mine && names[0] == network.FileName:
		return c, nil
	case !mine || names[0] != network.FileName:
		d.Mode = config.NetworkCNI
		if mine {
			d.Shadowed = filepath.Join(folder, network.FileName)
		}
		if network.OnlyLoopback(d.ConfigFile) && (mine || !othersNetwork(folder, names[1:])) {
			d.Mode, d.OnlyLoopback = "", true
		}
		return c, nil
	}
	d.own(c)
	return c, nil
}

// othersNetwork reports whether one of the configurations, none of which is a valid one
// of tinylet, sets up a pod network that the agent does not manage.
func othersNetwork(folder string, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		return name != network.FileName && !network.OnlyLoopback(filepath.Join(folder, name))
	})
}

// own sets the fields for tinylet's own configuration.
func (d *NetDocument) own(c cni.Config) {
	switch {
	case c.Refuse != "":
		d.Mode, d.Refuse = config.NetworkHost, c.Refuse
	case len(c.Direct) > 0:
		d.Mode = config.NetworkRouted
	default:
		d.Mode = config.NetworkBridge
	}
	d.Networks = append(networkDocuments(c.Ranges, false), networkDocuments(c.Kept, true)...)
	d.MTU, d.Masquerade, d.Direct = c.MTU, c.Masquerade, c.Direct
}

// kernel reads the state of the kernel and compares it with the configuration. table
// is nil on a kernel without nftables.
func (d *NetDocument) kernel(c cni.Config, host *link.Handle, table *nft.Table, lacks *nft.Unsupported) error {
	links, err := host.Links()
	if err != nil {
		return err
	}
	if err := d.uplink(host); err != nil {
		return err
	}
	if d.Mode == config.NetworkBridge || d.Mode == config.NetworkRouted {
		d.bridge(c.Bridge, links)
		var err error
		if lacks == nil {
			err = d.rules(c, table)
		}
		switch {
		case lacks != nil, errors.As(err, &lacks):
			d.RulesProblem = "pods without hostNetwork cannot start: " + lacks.Error()
			d.SpoofingProblem = "pods can spoof the addresses of other pods without nftables"
		case err != nil:
			return err
		default:
			if err := d.spoofing(); err != nil {
				return err
			}
		}
	}
	return d.pods(c, links, table)
}

func (d *NetDocument) uplink(host *link.Handle) error {
	u, err := host.Uplink()
	switch {
	case errors.Is(err, link.ErrNoRoute):
		return nil
	case err != nil:
		return err
	}
	d.Uplink = &UplinkDocument{Name: u.Link.Name, MTU: u.Link.MTU, Addresses: slices.Concat(u.V4, u.V6)}
	return nil
}

func (d *NetDocument) bridge(name string, links []link.Link) {
	d.Bridge = &BridgeDocument{Name: name}
	for i := range links {
		if l := &links[i]; l.Name == name {
			d.Bridge.Exists, d.Bridge.Up = true, l.Up
		}
	}
}

// rules sets RulesProblem to the difference between the table and the configuration.
func (d *NetDocument) rules(c cni.Config, table *nft.Table) error {
	b := nft.Base{Bridge: c.Bridge, Masquerade: c.Masquerade, Direct: c.Direct}
	for i := range d.Networks {
		b.Pods = append(b.Pods, d.Networks[i].Subnet)
	}
	err := table.Verify(b)
	var edited *nft.Edited
	if errors.Is(err, nft.ErrNoTable) || errors.As(err, &edited) {
		d.RulesProblem = err.Error()
		return nil
	}
	return err
}

// spoofing sets SpoofingProblem to why pods can spoof addresses.
func (d *NetDocument) spoofing() error {
	senders, err := nft.OpenSenders()
	if err != nil {
		return err
	}
	defer senders.Close()
	err = senders.Verify()
	if errors.Is(err, nft.ErrNoTable) {
		if lacks := senders.Supported(); lacks != nil {
			err = lacks
		}
	}
	var edited *nft.Edited
	switch {
	case errors.Is(err, nft.ErrNoBridgeFamily):
		d.SpoofingProblem = nft.ErrNoBridgeFamily.Error()
	case errors.Is(err, nft.ErrNoTable):
		d.SpoofingProblem = "nftables table bridge tinylet does not exist: the agent or the next pod creates it"
	case errors.As(err, &edited):
		d.SpoofingProblem = "another program has changed nftables table bridge tinylet (" + edited.What + "): the agent repairs it"
	default:
		return err
	}
	return nil
}

// pods adds the pods that have a lease.
func (d *NetDocument) pods(c cni.Config, links []link.Link, table *nft.Table) error {
	if _, err := os.Stat(c.StateDir); errors.Is(err, fs.ErrNotExist) {
		return nil // opening the leases would create their directory
	}
	n, err := podnet.New(c)
	if err != nil {
		return err
	}
	defer n.Close()
	entries, err := n.List()
	if err != nil {
		return err
	}
	ports, err := portsOf(table)
	if err != nil {
		return err
	}
	hasInterface := func(name string) bool {
		return slices.ContainsFunc(links, func(l link.Link) bool { return l.Name == name })
	}
	hasPort := func(p nft.Port) bool {
		p.Owner = nft.KeptOwner(p.Owner)
		return slices.Contains(ports, p)
	}
	for i := range entries {
		d.Pods = append(d.Pods, podNetDocument(&entries[i], hasInterface, hasPort))
	}
	slices.SortFunc(d.Pods, comparePods)
	return nil
}

func portsOf(table *nft.Table) ([]nft.Port, error) {
	if table == nil {
		return nil, nil
	}
	ports, err := table.Ports()
	var unsupported *nft.Unsupported
	if errors.As(err, &unsupported) {
		return nil, nil
	}
	return ports, err
}
