//go:build adopt

package handover

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"

	"github.com/tinylet/tinylet/test/suites/handover/inventory"
)

// volatile matches the random part of a termination message's path.
var volatile = regexp.MustCompile(`(/containers/[^/]+/)[0-9a-f]+$`)

// configs are the CRI configs of an inventory by what they are for, without
// what differs between any two starts.
func configs(inv *inventory.Inventory) map[string]any {
	out, ips := map[string]any{}, map[string]string{}
	for _, s := range inv.Sandboxes {
		out[s.Pod], ips[s.Pod] = plain(s.Config, ""), s.IP
	}
	for _, c := range newest(inv) {
		if !loops(c.Pod) { // no two lists show the same attempt
			out[fmt.Sprintf("%s/%s %d", c.Pod, c.Name, c.Attempt)] = plain(c.Config, ips[c.Pod])
		}
	}
	return out
}

// plain decodes a config and takes out what is random: the pod's address, the
// order of variables (the kubelet leaves it to Go's maps), times, and names of
// files.
func plain(config json.RawMessage, ip string) any {
	var tree map[string]any
	if err := json.Unmarshal(config, &tree); err != nil {
		return err.Error()
	}
	envs, _ := tree["envs"].([]any)
	for _, e := range envs {
		if env, _ := e.(map[string]any); ip != "" && env["value"] == ip {
			env["value"] = "the pod's address"
		}
	}
	sortBy(envs, "key")
	linux, _ := tree["linux"].(map[string]any)
	resources, _ := linux["resources"].(map[string]any)
	pages, _ := resources["hugepage_limits"].([]any)
	sortBy(pages, "page_size") // the kubelet has them in the order of the folder
	if annotations, ok := tree["annotations"].(map[string]any); ok {
		delete(annotations, "kubernetes.io/config.seen") // a time
		// What a stock kubelet leaves alone.
		delete(annotations, "tinylet.dev/backoff-seconds")
		delete(annotations, "tinylet.dev/boot-id")
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

// sortBy orders objects by one of their strings.
func sortBy(list []any, key string) {
	text := func(v any) string {
		object, _ := v.(map[string]any)
		s, _ := object[key].(string)
		return s
	}
	slices.SortFunc(list, func(a, b any) int { return cmp.Compare(text(a), text(b)) })
}
