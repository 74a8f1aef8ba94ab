//go:build cluster

package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// services lead to the pods a and b.
const services = `apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: NodePort, selector: {tier: web}, ports: [{port: 80, nodePort: 30080}]}
---
apiVersion: v1
kind: Service
metadata: {name: sticky}
spec: {type: NodePort, sessionAffinity: ClientIP, selector: {tier: web}, ports: [{port: 8000, targetPort: 80, nodePort: 30081}]}
---
apiVersion: v1
kind: Service
metadata: {name: near}
spec: {type: NodePort, externalTrafficPolicy: Local, selector: {tier: web}, ports: [{port: 80, nodePort: 30082}]}
`

// proxied is a board that carries Services.
type proxied struct {
	rules       string            // of the board before there were Services of ours
	ips         map[string]string // cluster IPs by name
	stuck       string            // the pod that answers to c by affinity
	own, beside string            // the board's address, and the one that asks from outside
}

// TestServices has a node carry the addresses of Services without kube-proxy.
func TestServices(t *testing.T) {
	l := networkLab(t, "services: true")
	l.vm = l.bootWith(append(l.joinFiles(l.bootstrap()), rulesProgram(t)))
	l.until("the node is Ready", l.nodeReady)
	p := proxied{own: l.network().Address.Addr().String(), beside: l.network().Gateway.String()}
	l.run(t,
		step{"the API server's own", p.kubernetes},
		step{"cluster IPs", p.clusterIPs},
		step{"what the watches took", func(l lab) {
			for resource, bytes := range l.watchedServices() {
				if bytes == 0 {
					l.Errorf("no byte of a watch of %s is counted", resource)
				}
			}
		}},
		step{"affinity", p.affinity},
		step{"node ports", p.nodePorts},
		step{"without the agent", p.away},
		step{"a pod goes", p.goes},
		step{"no pods", p.refused},
		step{"nothing left", p.left},
		step{"switched off", p.off},
	)
}

// tally counts what came to a dozen requests one after the other, from a pod
// or with "" from the board.
func (l lab) tally(pod, url string) map[string]int {
	l.Helper()
	script := "for i in $(seq 12); do wget -T 5 -q -O - " + url + " 2>&1; done; true"
	if pod != "" {
		script = "tinylet exec " + pod + " -- sh -c '" + script + "'"
	}
	return counted(strings.Split(l.sh(script), "\n"))
}

func counted(all []string) map[string]int {
	n := make(map[string]int)
	for _, one := range all {
		n[one]++
	}
	return n
}

// both says what is wrong with answers that two pods should have given.
func both(got map[string]int) string {
	if slices.Equal(slices.Sorted(maps.Keys(got)), []string{"a", "b"}) {
		return ""
	}
	return fmt.Sprint(got)
}

// kubernetes is the Service that each cluster has: the server answers to what
// is not TLS in plain words.
func (p *proxied) kubernetes(l lab) {
	l.c.Apply(l.T, serves("a", "")+serves("b", "")+serves("c", ""))
	l.until("three pods run", func() string { return l.running("app in (a,b,c)", 3) })
	for _, from := range []string{"c", ""} {
		l.until("the API server answers by its cluster IP to "+from, func() string {
			if got := l.get(from, "http://10.96.0.1:443"); !strings.Contains(got, "400 Bad Request") {
				return got
			}
			return ""
		})
	}
	p.rules = l.sh("rules")
	if !strings.Contains(p.rules, "default/kubernetes") {
		l.Fatalf("the Service is not in the table:\n%s", p.rules)
	}
}

func (p *proxied) clusterIPs(l lab) {
	l.c.Must(l.T, "label", "pod", "a", "b", "tier=web")
	l.c.Apply(l.T, services)
	p.ips = map[string]string{}
	for _, name := range []string{"web", "sticky", "near"} {
		var s corev1.Service
		l.c.Get(l.T, &s, "service", name)
		p.ips[name] = s.Spec.ClusterIP
	}
	for _, from := range []string{"c", "", "a"} { // a is led to itself as well
		l.until(fmt.Sprintf("both pods answer to %q", from), func() string { return both(l.tally(from, "http://"+p.ips["web"])) })
	}
	l.Logf("%s", l.sh("rules | grep default/"))
}

// watchedServices are the bytes that watches of what Services are made of have
// brought, as the agent counts them.
func (l lab) watchedServices() map[string]uint64 {
	l.Helper()
	all, watched := l.apiBytes(), map[string]uint64{}
	for _, resource := range []string{"services", "endpointslices"} {
		watched[resource] = all["received watch "+resource]
	}
	l.Logf("bytes of watches: %v", watched)
	return watched
}

func (p *proxied) affinity(l lab) {
	for _, from := range []string{"", "c"} {
		url := "http://" + p.ips["sticky"] + ":8000"
		l.until(fmt.Sprintf("the Service with affinity answers to %q", from), func() string {
			p.stuck = l.get(from, url)
			return both(map[string]int{"a": 1, "b": 1, p.stuck: 1})
		})
		if got := l.tally(from, url); len(got) != 1 || got["a"]+got["b"] != 12 {
			l.Errorf("answered to %q by %v, want one pod alone", from, got)
		}
	}
}

// ask counts what came from outside the board to a dozen requests.
func (p *proxied) ask(l lab, port int, path string) map[string]int {
	l.Helper()
	var all []string
	for range 12 {
		all = append(all, l.c.Ask(l.T, fmt.Sprintf("http://%s:%d%s", p.own, port, path)))
	}
	return counted(all)
}

func (p *proxied) nodePorts(l lab) {
	if problem := both(p.ask(l, 30080, "/")); problem != "" {
		l.Errorf("answered from outside by %s, want both pods", problem)
	}
	if got := p.ask(l, 30081, "/"); len(got) != 1 || got["a"]+got["b"] != 12 {
		l.Errorf("answered from outside with affinity by %v, want one pod alone", got)
	}
	if problem := both(p.ask(l, 30082, "/")); problem != "" {
		l.Errorf("answered from outside by %s, want both pods of this node", problem)
	}
	if got := p.ask(l, 30082, "/cgi-bin/who"); len(got) != 1 || got[p.beside] != 12 {
		l.Errorf("with externalTrafficPolicy Local the pods see %v, want %s", got, p.beside)
	}
	for _, from := range []string{"c", ""} {
		if problem := both(l.tally(from, "http://"+p.own+":30080")); problem != "" {
			l.Errorf("the node port answered to %q by %s", from, problem)
		}
	}
}

// away has Services go on while the agent does not run, and when it begins.
func (p *proxied) away(l lab) {
	before := l.sh("rules")
	for _, verb := range []string{"stop", "start"} {
		l.sh(l.service(verb))
		for _, got := range []map[string]int{l.tally("", "http://"+p.ips["web"]), p.ask(l, 30080, "/")} {
			if problem := both(got); problem != "" {
				l.Errorf("after the agent's %s answered by %s", verb, problem)
			}
		}
	}
	l.until("the node is Ready", l.nodeReady)
	// A Service that is new shows that the agent has written its rules anew. It has
	// one endpoint: for more there is a map, which takes the number of another.
	l.c.Apply(l.T, "apiVersion: v1\nkind: Service\nmetadata: {name: late}\nspec: {selector: {app: c}, ports: [{port: 80}]}\n")
	l.until("a Service that came after the agent's start", func() string {
		if got := l.sh("rules"); !strings.Contains(got, "default/late") {
			return "is not in the table"
		}
		return ""
	})
	l.c.Must(l.T, "delete", "service", "late")
	l.until("the rules are those before the agent's start, with the clients of each endpoint", func() string { return cmp.Diff(before, l.sh("rules")) })
}

// goes leaves one pod, also to those whom the other has answered so far.
func (p *proxied) goes(l lab) {
	l.c.Must(l.T, "delete", "pod", p.stuck, "--wait=true", "--timeout=4m")
	for _, url := range []string{"http://" + p.ips["web"], "http://" + p.ips["sticky"] + ":8000"} {
		l.until("the other pod answers at "+url, func() string {
			if got := l.tally("c", url); len(got) != 1 || got[p.stuck] > 0 || got["a"]+got["b"] != 12 {
				return fmt.Sprint(got)
			}
			return ""
		})
	}
}

// quickly is how soon a refusal has to come. It takes an emulated board a
// second to ask.
const quickly = 5 * time.Second

// refuses says whether a connection is refused, and not left to wait.
func (l lab) refuses(ask func() string) string {
	l.Helper()
	began := time.Now()
	got := ask()
	if took := time.Since(began); !strings.Contains(strings.ToLower(got), "connection refused") || took > quickly {
		return fmt.Sprintf("%q after %.1f s, want it refused", got, took.Seconds())
	}
	return ""
}

func (p *proxied) refused(l lab) {
	l.c.Must(l.T, "delete", "pod", "--selector=tier=web", "--wait=true", "--timeout=4m")
	for _, from := range []string{"c", ""} {
		l.until(fmt.Sprintf("%q is refused", from), func() string {
			return l.refuses(func() string { return l.get(from, "http://"+p.ips["web"]) })
		})
	}
	for _, port := range []int{30080, 30081} {
		if problem := l.refuses(func() string { return l.c.Ask(l.T, fmt.Sprintf("http://%s:%d", p.own, port)) }); problem != "" {
			l.Errorf("node port %d: %s", port, problem)
		}
	}
}

func (p *proxied) left(l lab) {
	l.c.Must(l.T, "delete", "service", "web", "sticky", "near")
	l.until("the rules are as they were", func() string { return cmp.Diff(p.rules, l.sh("rules")) })
	if got := l.get("c", "http://"+p.ips["web"]); strings.Contains(got, "refused") {
		l.Errorf("the address of no Service is answered: %s", got)
	}
}

// off has the agent begin without Services.
func (p *proxied) off(l lab) {
	l.put("/etc/tinylet/config.yaml", config)
	l.sh(l.service("restart"))
	l.until("no rules of services", func() string { return l.sh("rules | grep service; true") })
	if got := l.get("c", "http://"+l.c.Seen(l.T)); got != p.own {
		l.Errorf("the pod is seen as %q, want %s", got, p.own)
	}
}
