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

// Dismantle removes the tables of rules, and the bridge. It keeps a bridge that has ports
// or another MAC address than the agent's bridges.
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
	links, err := h.Links()
	hasPort := slices.ContainsFunc(links, func(other link.Link) bool { return other.Master == l.Index })
	if err != nil || hasPort || l.Kind != "bridge" || !bytes.Equal(l.MAC, link.StableMAC(bridge)) {
		return err
	}
	return h.DeleteLink(bridge)
}

// UplinkAddresses returns the node's addresses on its uplink, and those of the uplink's routers. It
// returns nil without an uplink.
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

// WatchLinks returns a function that calls notify when the host's links, addresses or
// default routes change, until its context ends. Links with the prefix veth, such as those
// of pods, are ignored, and what their ports change on the bridge: a reconcile would delay
// each pod that starts alone.
func WatchLinks(bridge string) func(ctx context.Context, notify func()) error {
	return func(ctx context.Context, notify func()) error {
		m, err := link.Listen()
		if err != nil {
			return err
		}
		return m.Run(ctx, link.Ignore{
			Link:  func(l link.Link) bool { return strings.HasPrefix(l.Name, "veth") },
			Ports: func(l link.Link) bool { return l.Name == bridge },
		}, notify)
	}
}

// WatchRules returns a function that calls notify when the nftables rules that all pods share
// change, until its context ends. Changes by this process are reported too.
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
