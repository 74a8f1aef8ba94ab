//go:build cluster

package cluster

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// otherName is the second board's.
const otherName = "edge-two"

// neighbours are two boards of one cluster on one link, with a pod on each.
type neighbours struct {
	a, b       lab
	podA, podB string // their addresses
}

// TestRouted has two nodes on one link reach each other's pods by routes.
func TestRouted(t *testing.T) {
	l := networkLab(t, "mode: routed, services: true")
	p := neighbours{a: l, b: l.beside(otherName)}
	boot := l.bootstrap()
	p.a.vm = p.a.boot(boot)
	p.b.vm = p.b.boot(boot)
	l.until("both nodes are Ready", func() string { return l.nodesReady(2) })
	p.a.run(t,
		step{"a route to the other's pods", p.routes},
		step{"pods reach each other", p.pods},
		step{"a Service of both", p.service},
		step{"a restart without the API server", p.restart},
		step{"the other node moves", p.moves},
		step{"a node goes and comes back", p.goes},
	)
}

// with has both boards for a subtest.
func (p *neighbours) with(t *testing.T) (a, b lab) { return p.a.with(t), p.b.with(t) }

// podRoutes are the routes of a board to pods beyond it, as the program ip has
// them: "10.244.1.0/24 via 10.77.0.11 dev eth0".
func (l lab) podRoutes() string {
	l.Helper()
	all := strings.Split(l.sh("ip route"), "\n")
	all = slices.DeleteFunc(all, func(r string) bool { return !strings.HasPrefix(r, "10.244.") || !strings.Contains(r, " via ") })
	for i := range all {
		all[i] = strings.TrimSpace(all[i])
	}
	return strings.Join(all, "\n")
}

// podCIDR is the network of the board's pods as its Node has it.
func (l lab) podCIDR() string {
	l.Helper()
	var node corev1.Node
	l.c.Get(l.T, &node, "node", l.network().Hostname)
	if !strings.HasPrefix(node.Spec.PodCIDR, "10.244.") {
		l.Fatalf("the node has podCIDR %q", node.Spec.PodCIDR)
	}
	return node.Spec.PodCIDR
}

// podGateway is the board's address in the network of its pods.
func (l lab) podGateway() string {
	l.Helper()
	return netip.MustParsePrefix(l.podCIDR()).Addr().Next().String()
}

// routeTo is the one route to a board's pods.
func (l lab) routeTo() string {
	l.Helper()
	return l.podCIDR() + " via " + l.network().Address.Addr().String() + " dev eth0"
}

// hasRoute waits for the routes to be these and no others.
func (l lab) hasRoute(what, want string) {
	l.Helper()
	l.until(what, func() string {
		if got := l.podRoutes(); got != want {
			return "routes are " + got + ", want " + want
		}
		return ""
	})
}

func (p *neighbours) routes(l lab) {
	a, b := p.with(l.T)
	a.hasRoute("the first board has a route", b.routeTo())
	b.hasRoute("the second board has a route", a.routeTo())
}

func (p *neighbours) pods(l lab) {
	a, b := p.with(l.T)
	l.c.Apply(l.T, serves("a", "")+servesOn(otherName, "b", ""))
	l.until("a pod runs on each", func() string { return strings.TrimSpace(l.running("app in (a,b)", 2)) })
	p.podA, p.podB = l.pod("a").Status.PodIP, l.pod("b").Status.PodIP
	for _, way := range []struct {
		from           lab
		pod, seen      string
		name, to, what string
	}{
		{a, "a", p.podA, "b", p.podB, "first to second"},
		{b, "b", p.podB, "a", p.podA, "second to first"},
		{a, "", a.network().Address.Addr().String(), "b", p.podB, "first board to second's pod"},
	} {
		l.until(way.what, func() string {
			if got := way.from.get(way.pod, "http://"+way.to); got != way.name {
				return got
			}
			return ""
		})
		if got := way.from.get(way.pod, "http://"+way.to+"/cgi-bin/who"); got != way.seen {
			l.Errorf("%s: seen as %q, want %s", way.what, got, way.seen)
		}
	}
	// What is no other node's pod still sees the node.
	if got, want := a.get("a", "http://"+l.c.Seen(l.T)), a.network().Address.Addr().String(); got != want {
		l.Errorf("beyond the nodes seen as %q, want %s", got, want)
	}
}

// service has a Service of pods of both boards.
func (p *neighbours) service(l lab) {
	a, b := p.with(l.T)
	l.c.Must(l.T, "label", "pod", "a", "b", "tier=web")
	l.c.Apply(l.T, strings.Split(services, "---")[0])
	var s corev1.Service
	l.c.Get(l.T, &s, "service", "web")
	url := "http://" + s.Spec.ClusterIP
	for pod, from := range map[string]lab{"a": a, "b": b} {
		l.until("both pods answer to "+pod, func() string { return both(from.tally(pod, url)) })
	}
	// On the same board replies have to pass its rules, so that it is seen there.
	if got := a.tally("a", url+"/cgi-bin/who"); got[p.podA] == 0 || got[p.podA]+got[a.podGateway()] != 12 {
		l.Errorf("seen as %v, want the pod's own address %s by the other board", got, p.podA)
	}
	for _, board := range []lab{a, b} {
		outside := proxied{own: board.network().Address.Addr().String()}
		if problem := both(outside.ask(l, 30080, "/")); problem != "" {
			l.Errorf("answered from outside at %s by %s", outside.own, problem)
		}
	}
}

// restart has the agent begin without the API server and without its routes:
// what it knew then has to do.
func (p *neighbours) restart(l lab) {
	a, b := p.with(l.T)
	want := b.routeTo()
	tasks := a.sh("ctr -n k8s.io task ls | sort")
	l.c.Partition(l.T, name)
	// The program ip of boards shows no protocol, but removes a route only if
	// it has the one that is said.
	network, _, _ := strings.Cut(want, " ")
	a.sh("! ip route del " + network + " proto 115 2>&1 && ip route del " + network + " proto 116")
	a.hasRoute("the route was of protocol 116", "")
	a.sh(a.service("restart"))
	a.hasRoute("the route is back without the API server", want)
	l.c.Heal(l.T, name)
	l.until("both nodes are Ready", func() string { return l.nodesReady(2) })
	l.until("the pods reach each other again", func() string {
		if got := a.get("a", "http://"+p.podB+"/cgi-bin/who"); got != p.podA {
			return got
		}
		return ""
	})
	a.hasRoute("the route stays", want)
	if got := a.sh("ctr -n k8s.io task ls | sort"); got != tasks {
		l.Errorf("tasks\n%s\nwere\n%s", got, tasks)
	}
}

// moves gives the second board another address, and its own again.
func (p *neighbours) moves(l lab) {
	a, b := p.with(l.T)
	for _, address := range []string{"10.77.0.77", b.network().Address.Addr().String()} {
		b.leased("eth0", address, 0)
		a.hasRoute("the route leads to "+address, b.podCIDR()+" via "+address+" dev eth0")
		if got := a.get("a", "http://"+p.podB+"/cgi-bin/who"); got != p.podA {
			l.Errorf("seen as %q, want %s", got, p.podA)
		}
		b.hasRoute("the other way is as it was", a.routeTo())
	}
}

// goes takes a Node away, whose agent makes a new one when it starts again.
func (p *neighbours) goes(l lab) {
	a, b := p.with(l.T)
	l.c.Must(l.T, "delete", "node", otherName)
	a.hasRoute("the route goes", "")
	b.sh(b.service("restart"))
	l.until("both nodes are Ready", func() string { return l.nodesReady(2) })
	a.hasRoute("the new Node has a route", b.routeTo())
	b.hasRoute("the other node's route is as it was", a.routeTo())
}
