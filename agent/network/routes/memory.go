package routes

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"slices"

	"github.com/tinylet/tinylet/agent/apiserver/listwatch"
	"github.com/tinylet/tinylet/agent/store/atomicfile"
)

// maxNodeCache bounds the size of the file, in bytes.
const maxNodeCache = 4 << 20

// nodeCache is the path of a file with the last known nodes. With it, a board that
// starts while the API server is unreachable can reach the pods of other nodes.
type nodeCache string

// cachedNode is a node in the file.
type cachedNode struct {
	Name      string         `json:"name"`
	Networks  []netip.Prefix `json:"podCIDRs"`
	Addresses []netip.Addr   `json:"addresses"`
	Since     int64          `json:"since"`
}

// load reads the file. It returns nil if there is none.
func (m nodeCache) load() (map[listwatch.Key]peer, error) {
	data, err := atomicfile.Read(string(m), maxNodeCache)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read node cache: %w", err)
	}
	peers, err := recall(data)
	if err != nil {
		return nil, fmt.Errorf("read node cache %s: %w", m, err)
	}
	return peers, nil
}

// recall parses the content of the file, without invalid networks and addresses.
func recall(data []byte) (map[listwatch.Key]peer, error) {
	var all []cachedNode
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, err
	}
	peers := make(map[listwatch.Key]peer, len(all))
	for _, one := range all {
		p := peer{since: one.Since}
		for _, network := range one.Networks {
			if network.IsValid() && !network.Addr().Is4In6() {
				p.networks = append(p.networks, network.Masked())
			}
		}
		for _, a := range one.Addresses {
			if a.IsValid() && a.Zone() == "" {
				p.addresses = append(p.addresses, a.Unmap())
			}
		}
		peers[listwatch.Key{Name: one.Name}] = p
	}
	return peers, nil
}

// store writes the file atomically.
func (m nodeCache) store(peers map[listwatch.Key]peer) error {
	all := make([]cachedNode, 0, len(peers))
	for _, key := range slices.SortedFunc(maps.Keys(peers), byName) {
		all = append(all, cachedNode{key.Name, peers[key].networks, peers[key].addresses, peers[key].since})
	}
	data, err := json.Marshal(all)
	if err == nil {
		err = atomicfile.Write(string(m), data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write node cache: %w", err)
	}
	return nil
}
