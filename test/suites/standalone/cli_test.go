//go:build board

package standalone

import (
	"encoding/json"
	"strings"

	"github.com/tinylet/tinylet/agent/server/local"
	"github.com/tinylet/tinylet/agent/server/statuspage"
)

// lookedInto is what somebody at the board does with the pod web.
func (n node) lookedInto() {
	for _, row := range []struct{ command, want string }{
		{"tinylet exec web -c server -- sh -c 'echo out; echo err >&2; exit 7' 2>/tmp/err; echo $?; head -1 /tmp/err", "out\n7\nerr"},
		{"echo hello | tinylet exec -i web -c server -- cat", "hello"},
		{"tinylet exec web -c server -- sh -c 'dd if=/dev/zero bs=64k count=320 2>/dev/null' | wc -c", "20971520"},
		{"dd if=/dev/urandom of=/tmp/big bs=64k count=160 2>/dev/null; tinylet exec -i web -c server -- sha256sum < /tmp/big | cut -c1-64 > /tmp/sum; " +
			"sha256sum /tmp/big | cut -c1-64 | cmp - /tmp/sum && echo same; rm /tmp/big", "same"},
		{"tinylet exec nobody -- true 2>&1 | grep -c nobody", "1"},
		{"tinylet exec once -- true 2>&1 >/dev/null | grep -c terminated", "1"},
	} {
		if got := n.sh("%s", row.command); got != row.want {
			n.Errorf("%s: %q, want %q", row.command, got, row.want)
		}
	}
	n.used()
	n.page()
	for _, want := range []string{"kubelet_running_pods ", "kubelet_runtime_operations_total{", "process_resident_memory_bytes "} {
		if text := n.sh("tinylet metrics"); !strings.Contains(text, "\n"+want) {
			n.Errorf("the metrics have no %s", want)
		}
	}
}

// used is tinylet top.
func (n node) used() {
	text := n.sh("tinylet top --once --containers")
	if !strings.Contains(text, "web") || !strings.Contains(text, "server") {
		n.Errorf("top:\n%s", text)
	}
	n.Log("\n" + text)
	var u local.Usage
	if err := json.Unmarshal([]byte(n.sh("tinylet top --once -o json")), &u); err != nil {
		n.Fatal(err)
	}
	if u.Node.CPUNanoCores == nil || u.Node.MemoryBytes == 0 || u.Node.MemoryCapacityBytes < 200<<20 || len(u.Classes) == 0 || len(u.Pods) != 3 {
		n.Errorf("usage %+v", u)
	}
	for _, p := range u.Pods {
		if strings.HasPrefix(p.Name, "web") && (p.MemoryBytes == 0 || p.CPUNanoCores == nil || len(p.Containers) < 2) {
			n.Errorf("usage of %s: %+v", p.Name, p)
		}
	}
}

// page is the status page.
func (n node) page() {
	if got := n.sh("wget -q -O - http://127.0.0.1:10248/ | head -1"); !strings.HasPrefix(strings.ToLower(got), "<!doctype html>") {
		n.Errorf("the status page begins with %q", got)
	}
	var state statuspage.State
	if err := json.Unmarshal([]byte(n.sh("wget -q -O - http://127.0.0.1:10248/page/state")), &state); err != nil {
		n.Fatal(err)
	}
	if len(state.Pods) != 3 || len(state.Checks) < 2 || len(state.Events) == 0 || state.Node.MemoryBytes == 0 || len(state.Classes) == 0 {
		n.Errorf("the page's state: %+v", state)
	}
	first := n.sh("wget -q -O - http://127.0.0.1:10248/page/events 2>/dev/null | head -c 200")
	if !strings.Contains(first, "data: {") {
		n.Errorf("the page's events begin with %q", first)
	}
}
