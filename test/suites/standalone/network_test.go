//go:build board

package standalone

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tinylet/tinylet/cmd/tinylet/cli"
	"github.com/tinylet/tinylet/test/harness/board"
)

// networkConfig gives pods addresses of both families.
const networkConfig = podConfig + `network: {podCIDRs: [10.88.7.0/24, "fd00:88:7::/64"]}
`

// says is a pod that answers on a port with the address of who asks, at /who,
// and has a shell.
func says(name string, port int, more string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: %s
    args: [serve, -http, ":%d"]
    %s
  - {name: shell, image: %s, command: [sleep, "100000"]}
`, name, programImage, port, more, board.BusyboxImage)
}

// TestNetwork is the pods' network on a board without any program for it: no
// plugins, no iptables, no nft.
func TestNetwork(t *testing.T) {
	n := boot(t, board.VMOptions{Files: []board.File{
		{Path: imagesDir + "/program.tar", Mode: 0o644, Data: programArchive(t)},
		{Path: "/etc/tinylet/config.yaml", Mode: 0o644, Data: []byte(networkConfig)},
	}})
	before := n.netState()
	n.put("one.yaml", says("one", 80, ""))
	n.put("two.yaml", says("two", 80, "ports: [{containerPort: 80, hostPort: 8080}, {containerPort: 80, hostPort: 8081, hostIP: 127.0.0.1}]"))
	n.put("forger.yaml", strings.Replace(says("forger", 80, ""), "name: shell,", "name: shell, securityContext: {capabilities: {add: [NET_ADMIN]}},", 1))
	n.put("host.yaml", strings.Replace(says("host", 7070, ""), "spec:", "spec:\n  hostNetwork: true", 1))
	pods := n.eventually(patience, "all run", func(pods map[string]cli.PodDocument) string {
		return statuses(map[string]string{"one": "Running", "two": "Running", "forger": "Running", "host": "Running"})(pods)
	})
	if found := n.sh("ls -d /usr/lib/cni /usr/sbin/iptables /usr/sbin/nft 2>/dev/null; ls /opt/cni/bin; true"); strings.TrimSpace(found) != "tinylet-cni" {
		t.Errorf("the image has programs for networks: %q", found)
	}
	one, two := pods["one"].PodIP, pods["two"].PodIP
	if !strings.HasPrefix(one, "10.88.7.") || one == two {
		t.Fatalf("addresses %q and %q", one, two)
	}
	six := map[string]string{}
	for _, name := range []string{"one", "two"} {
		six[name] = strings.TrimSpace(n.sh("tinylet exec %s -c shell -- ip -6 -o addr show dev eth0 scope global | sed 's/.*inet6 //; s#/.*##'", name))
	}
	own := strings.TrimSpace(n.sh("ip -4 -o addr show dev eth0 | sed 's/.*inet //; s#/.*##'"))
	t.Logf("one is %s and %s, two is %s and %s, the host %s", one, six["one"], two, six["two"], own)
	inside := func(name string) string { return "tinylet exec " + name + " -c shell -- " }
	for _, row := range []struct{ name, from, to, seen string }{
		{"pod to pod", inside("one"), two, one},
		{"pod to pod, IPv6", inside("one"), "[" + six["two"] + "]", six["one"]},
		{"pod to host", inside("one"), own + ":7070", one},
		{"pod to its gateway", inside("one"), "10.88.7.1:7070", one},
		{"pod to host, IPv6", inside("one"), "[fd00:88:7::1]:7070", six["one"]},
		{"host to pod", "", one, "10.88.7.1"},
		{"host to pod, IPv6", "", "[" + six["one"] + "]", "fd00:88:7::1"},
		{"host port from localhost", "", "127.0.0.1:8080", "10.88.7.1"},
		{"host port of localhost alone", "", "127.0.0.1:8081", "10.88.7.1"},
		{"host port by the host's address", "", own + ":8080", ""},
		{"host port from another pod", inside("one"), own + ":8080", "10.88.7.1"},
		{"host port from the pod itself", inside("two"), own + ":8080", "10.88.7.1"},
		{"pod to itself", inside("two"), two, two},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := strings.TrimSpace(n.with(t).sh("%swget -T 10 -q -O - http://%s/who", row.from, row.to))
			if got == "" || got != row.seen && row.seen != "" {
				t.Errorf("seen as %q, want %q", got, row.seen)
			}
		})
	}
	t.Run("a pod sends as another", func(t *testing.T) { n.with(t).forges(two, six["two"]) })
	t.Run("over a restart of the agent", func(t *testing.T) {
		n := n.with(t)
		n.sh("/etc/init.d/S50tinylet restart")
		n.eventually(patience, "they run on", func(pods map[string]cli.PodDocument) string {
			return statuses(map[string]string{"one": "Running", "two": "Running", "forger": "Running", "host": "Running"})(pods)
		})
		if got := n.sh("wget -T 10 -q -O - http://127.0.0.1:8080/who"); got == "" {
			t.Error("the port is gone with a restart of the agent")
		}
	})
	n.clear()
	if after := n.netState(); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
}

// forgeries are run in a pod that may change its interface. Each line of the
// output is what was tried and whether the other pod's answer came; the lines
// named honest show that it can come.
const forgeries = `
answers() {
	name=$1; shift
	if out=$(ping -q -c 1 -W "$wait" "$@" 2>&1); then echo "$name: yes"; return; fi
	case $out in *transmitted*) echo "$name: no";; *) echo "$name: not sent: $out";; esac
}
ip addr add 10.88.7.250/32 dev eth0
ip -6 addr add fd00:88:7::250/128 dev eth0
mac=$(cat /sys/class/net/eth0/address)
wait=10
answers "honest, IPv4" $four
answers "honest, IPv6" $six
sleep 3 # until the kernel has the address: no other has it
wait=3
answers "a free IPv4 address" -I 10.88.7.250 $four
answers "a free IPv6 address" -I fd00:88:7::250 $six
ip link set eth0 address 02:00:00:00:00:07
answers "another MAC address" $four
ip link set eth0 address $mac
ip addr add $four/32 dev eth0
arping -q -U -c 3 -I eth0 -s $four $four || echo "no ARP was sent"
ip addr del $four/32 dev eth0
ip addr del 10.88.7.250/32 dev eth0
wait=10
answers "honest again" $four
`

// forges has the pod forger send with addresses that are not its own, and claim
// another pod's address by ARP.
func (n node) forges(four, six string) {
	n.Helper()
	neighbor := "tinylet exec one -c shell -- ip neigh show " + four
	before := n.sh("tinylet exec one -c shell -- ping -q -c 1 -W 10 %s >/dev/null; %s", four, neighbor)
	got := n.sh("tinylet exec forger -c shell -- sh -c '%s'", "four="+four+" six="+six+forgeries)
	want := "honest, IPv4: yes\nhonest, IPv6: yes\na free IPv4 address: no\na free IPv6 address: no\nanother MAC address: no\nhonest again: yes"
	if got != want {
		n.Errorf("answers of the other pod:\n%s\nwant\n%s", got, want)
	}
	mac := func(line string) string {
		_, line, _ = strings.Cut(line, "lladdr ")
		line, _, _ = strings.Cut(line, " ")
		return line
	}
	if after := n.sh("%s", neighbor); mac(before) == "" || mac(before) != mac(after) {
		n.Errorf("the pod's neighbour was %q, and is %q", before, after)
	}
}

// netState is what pods' networks leave: links, leases and pinned namespaces.
func (n node) netState() string {
	n.Helper()
	return n.sh("ls /sys/class/net | grep veth; find /run/tinylet/cni /run/netns -type f -o -type l 2>/dev/null; true")
}
