//go:build adopt

package adopt

import (
	"encoding/json"
	"fmt"
	"regexp"

	"github.com/tinylet/tinylet/test/adopt/inventory"
)

// volatile matches the random part of a termination message's path.
var volatile = regexp.MustCompile(`(/containers/[^/]+/)[0-9a-f]+$`)

// configs are the CRI configs of an inventory by what they are for, without
// what differs between any two starts.
func configs(inv *inventory.Inventory) map[string]any {
	out := map[string]any{}
	for _, s := range inv.Sandboxes {
		out[s.Pod] = plain(s.Config)
	}
	for _, c := range inv.Containers {
		if loops(c.Pod) { // no two lists show the same attempts
			continue
		}
		out[fmt.Sprintf("%s/%s %d", c.Pod, c.Name, c.Attempt)] = plain(c.Config)
	}
	return out
}

func plain(config json.RawMessage) any {
	var tree map[string]any
	if err := json.Unmarshal(config, &tree); err != nil {
		return err.Error()
	}
	if annotations, ok := tree["annotations"].(map[string]any); ok {
		delete(annotations, "kubernetes.io/config.seen") // a time
		delete(annotations, "tinylet.dev/backoff-seconds")
	}
	mounts, _ := tree["mounts"].([]any)
	for _, m := range mounts {
		mount, _ := m.(map[string]any)
		if path, ok := mount["host_path"].(string); ok {
			mount["host_path"] = volatile.ReplaceAllString(path, "${1}ID")
		}
	}
	return tree
}
