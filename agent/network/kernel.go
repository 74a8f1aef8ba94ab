package network

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/net/link"
	"github.com/tinylet/tinylet/net/podnet"
)

// listLimit is the deadline for listing the runtime's sandboxes.
const listLimit = 30 * time.Second

// Dismantle removes the tables of rules, and the bridge unless it has ports or was not
// created by this agent.
func Dismantle(bridge string) error {
	if err := podnet.Dismantle(bridge); err != nil {
		return err
	}
	h, err := link.Open()
	if err != nil {
		return err
	}
	defer h.Close()
	l, err := h.Link(bridge)
	if errors.Is(err, link.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	ports, err := h.Ports(l.Index)
	if err != nil || len(ports) > 0 || l.Kind != "bridge" || !bytes.Equal(l.MAC, link.StableMAC(bridge)) {
		return err
	}
	return h.DeleteLink(bridge)
}

// UplinkAddresses returns the node's addresses on its uplink, and those of the routers. It returns nil
// without an uplink.
func UplinkAddresses() ([]netip.Addr, error) {
	h, err := link.Open()
	if err != nil {
		return nil, err
	}
	defer h.Close()
	u, err := h.Uplink()
	if errors.Is(err, link.ErrNoRoute) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	all := slices.Concat(u.V4, u.V6, []netip.Addr{u.Gateway4, u.Gateway6})
	return slices.DeleteFunc(all, func(a netip.Addr) bool { return !a.IsValid() }), nil
}

// WatchLinks returns a function that calls notify when the host's links, addresses or routes change,
// until its context ends. Links of pods are ignored, and so is the carrier of their bridge: a reconcile
// for each pod that starts alone would delay it.
func WatchLinks(bridge string) func(ctx context.Context, notify func()) error {
	return func(ctx context.Context, notify func()) error {
		m, err := link.Listen()
		if err != nil {
			return err
		}
		return m.Run(ctx, link.Ignore{
			Link:    func(l link.Link) bool { return strings.HasPrefix(l.Name, "veth") },
			Carrier: func(l link.Link) bool { return l.Name == bridge },
		}, notify)
	}
}

// WatchRules returns a function that calls notify when others change the nftables rules that all
// pods share, until its context ends.
func WatchRules(bridge string) func(ctx context.Context, notify func()) error {
	return func(ctx context.Context, notify func()) error { return podnet.Watch(ctx, bridge, notify) }
}

// Sandboxes returns the IDs of the runtime's pod sandboxes. ok is false if they are
// unknown.
func Sandboxes(ctx context.Context, rt container.Runtime) (ids []string, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, listLimit)
	defer cancel()
	list, err := rt.ListPodSandbox(ctx, nil)
	if err != nil {
		return nil, false
	}
	for _, s := range list {
		ids = append(ids, s.GetId())
	}
	return ids, true
}
