//go:build cluster

package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// followed is how soon the cluster knows a node's new address: sooner than the
// silence of the former connection would be noticed.
const followed = 20 * time.Second

// uplink is a board whose way to the world changes.
type uplink struct {
	pods                   map[string]string // addresses and containers of its pods at first
	seen                   string            // who asks there is told whom it sees
	first, another, second string            // addresses of eth0, and of eth1
}

// TestUplinkChanges has a node's way to the world go and come back, get another
// address, and lead over another network card, while its pods stay.
func TestUplinkChanges(t *testing.T) {
	l := prepareLab(t)
	l.second = l.c.BoardNet(t, name+"-wireless")
	l.vm = l.boot(l.bootstrap())
	l.until("the node is Ready", l.nodeReady)
	u := uplink{
		seen: l.c.Seen(t), first: l.network().Address.Addr().String(), another: "10.77.0.77",
		second: l.second.Address.Addr().String(),
	}
	l.c.Apply(t, serves("a", "")+serves("b", "ports: [{containerPort: 80, hostPort: 8080}]"))
	l.until("two pods run", func() string { return l.running("app in (a,b)", 2) })
	u.pods = u.state(l)
	l.run(t,
		step{"as it begins", func(l lab) { u.works(l, u.first) }},
		step{"it goes and comes back", u.comesBack},
		step{"another address", u.readdressed},
		step{"the second card takes over", u.failover},
		step{"the first card is back", u.failback},
		step{"the pods' host", u.host},
	)
}

// state are the addresses and containers of the pods.
func (u *uplink) state(l lab) map[string]string {
	l.Helper()
	pods := l.pods("app in (a,b)")
	state := restarts(pods)
	for i := range pods {
		state[pods[i].Name] = pods[i].Status.PodIP
	}
	return state
}

// leased sets a card of the board up as a DHCP client does, which tells the
// neighbours too.
func (l lab) leased(card, address string, metric int) {
	l.Helper()
	l.sh(fmt.Sprintf("ip link set %[1]s up && ip addr flush dev %[1]s && ip addr add %[2]s/24 dev %[1]s && ip route add default via %[3]s dev %[1]s metric %[4]d && { arping -q -U -c 1 -w 1 -I %[1]s %[2]s || true; }",
		card, address, l.network().Gateway, metric))
}

// works says that all works with the address that the board is to have now.
func (u *uplink) works(l lab, address string) {
	l.Helper()
	began := time.Now()
	l.until("pods are seen as "+address, func() string {
		if got := l.get("a", "http://"+u.seen); got != address {
			return got
		}
		return ""
	})
	l.until("the host port is reached at "+address, func() string {
		if got := l.c.Ask(l.T, "http://"+address+":8080/"); got != "b" {
			return got
		}
		return ""
	})
	if got := l.get("a", "http://"+u.pods["b"]); got != "b" {
		l.Errorf("pod to pod: %q", got)
	}
	l.until("the Node has the address "+address, func() string { return u.tells(l, address) })
	if took := time.Since(began); took > followed {
		l.Errorf("the Node's address has followed after %.0f s, want it within %v", took.Seconds(), followed)
	}
	l.until("the node is Ready", l.nodeReady)
	l.until("the API server reaches the node", func() string {
		out, err := l.c.Kubectl(l.Context(), "exec", "a", "--", "echo", "hello")
		if err != nil || out != "hello" {
			return fmt.Sprintf("%q, %v", out, err)
		}
		return ""
	})
	if diff := cmp.Diff(u.pods, u.state(l)); diff != "" {
		l.Errorf("pods (-at first +now):\n%s", diff)
	}
	l.Logf("the pods' host is %s for the cluster; %s", l.pod("a").Status.HostIP, l.sh("tinylet net | grep ^UPLINK"))
}

// tells says what the Node has in place of the address.
func (u *uplink) tells(l lab, address string) string {
	l.Helper()
	var node corev1.Node
	l.c.Get(l.T, &node, "node", name)
	var internal []string
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			internal = append(internal, a.Address)
		}
	}
	if !slices.Equal(internal, []string{address}) {
		return "it has " + strings.Join(internal, ", ")
	}
	return ""
}

// comesBack has a cable pulled and put in again.
func (u *uplink) comesBack(l lab) {
	l.sh("ip link set eth0 down")
	if got := l.get("a", "http://"+u.pods["b"]); got != "b" {
		l.Errorf("pod to pod without an uplink: %q", got)
	}
	if got := l.get("", "http://127.0.0.1:8080"); got != "b" {
		l.Errorf("host port without an uplink: %q", got)
	}
	l.leased("eth0", u.first, 0)
	u.works(l, u.first)
}

// readdressed has a DHCP server give another address of the same network.
func (u *uplink) readdressed(l lab) {
	l.leased("eth0", u.another, 0)
	u.works(l, u.another)
	if got := l.c.Ask(l.T, "http://"+u.first+":8080/"); got == "b" {
		l.Error("the host port is reached at the former address")
	}
}

// failover has a second card, whose way is the longer one, stay alone.
func (u *uplink) failover(l lab) {
	l.leased("eth1", u.second, 200)
	u.works(l, u.another)
	l.sh("ip link set eth0 down")
	u.works(l, u.second)
}

// failback has the first card come back as the second goes.
func (u *uplink) failback(l lab) {
	l.leased("eth0", u.another, 0)
	l.sh("ip link set eth1 down")
	u.works(l, u.another)
}

// resync is how soon a kubelet looks at each pod again: its syncFrequency, and
// half of it by chance.
const resync = 90 * time.Second

// host looks at what pods tell of their node, which changed minutes ago, and
// again just before.
func (u *uplink) host(l lab) {
	var got string
	for began := time.Now(); time.Since(began) < resync; time.Sleep(time.Second) {
		if got = l.pod("a").Status.HostIP; got == u.another {
			return
		}
	}
	l.Errorf("a pod has hostIP %s for %v, want %s as its Node has", got, resync, u.another)
}
