package agent

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tinylet/tinylet/agent/config"
)

// kubeconfig is one of a cluster whose server nobody asks.
const kubeconfig = `apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
`

// The node's API is where there is somebody who judges who calls, and where it
// is wanted.
func TestWhereThereIsANodeAPI(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(c *config.Config)
		api    bool
	}{
		{"a board alone", func(*config.Config) {}, false},
		{"a node of a cluster", func(c *config.Config) { c.Kubeconfig = filepath.Join(c.Paths.Root, "kubeconfig") }, true},
		{"switched off", func(c *config.Config) {
			c.Kubeconfig = filepath.Join(c.Paths.Root, "kubeconfig")
			c.Kubelet.EnableServer = new(false)
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, l *lab) {
				if err := os.WriteFile(filepath.Join(l.cfg.Paths.Root, "kubeconfig"), []byte(kubeconfig), 0o600); err != nil {
					t.Fatal(err)
				}
				l.cfg.Paths.State, l.cfg.Paths.PKI = l.cfg.Paths.Root, filepath.Join(l.cfg.Paths.Root, "pki")
				tt.change(l.cfg)
				l.want(shell(t, "web", "Always", "sleep infinity"))
				l.start()
				a := l.agent
				if (a.cluster != nil) != (l.cfg.Kubeconfig != "") || (a.nodeAPI != nil) != tt.api {
					t.Errorf("cluster: %v, its API: %v", a.cluster != nil, a.nodeAPI != nil)
				}
				if a.streams == nil || a.local == nil {
					t.Error("root at the board cannot ask")
				}
				if tt.api && len(a.serverTasks()) != 4 {
					t.Errorf("%d tasks", len(a.serverTasks()))
				}
				l.settle(5 * time.Second)
				told := 0
				for p, st := range a.statuses.All() {
					if told++; p == nil || st == nil {
						t.Errorf("told of %v, %v", p, st)
					}
				}
				for range a.statuses.All() {
					break // who asks may stop
				}
				if told != 1 {
					t.Errorf("%d pods are told of", told)
				}
			})
		})
	}
}

// A pod's status has the node's address, also after that has changed.
func TestAddressOfThePodsNode(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		if err := os.WriteFile(filepath.Join(l.cfg.Paths.Root, "kubeconfig"), []byte(kubeconfig), 0o600); err != nil {
			t.Fatal(err)
		}
		l.cfg.Kubeconfig, l.cfg.Paths.State, l.cfg.Paths.PKI = filepath.Join(l.cfg.Paths.Root, "kubeconfig"), l.cfg.Paths.Root, filepath.Join(l.cfg.Paths.Root, "pki")
		l.cfg.NodeIPs = []netip.Addr{netip.MustParseAddr("192.0.2.7")}
		l.want(shell(t, "web", "Always", "sleep infinity"))
		l.start()
		l.settle(5 * time.Second)
		address := func() string {
			for _, st := range l.agent.statuses.All() {
				return st.HostIP
			}
			return "of no pod"
		}
		if got := address(); got != "192.0.2.7" {
			t.Errorf("at first %s", got)
		}
		l.cfg.NodeIPs[0] = netip.MustParseAddr("192.0.2.9")
		l.agent.node.ForgetAddresses()
		l.agent.registration.registrar.Conditions(t.Context()) // as tinylet status and the status page do
		l.agent.registration.state.State()
		l.settle(5 * time.Second)
		if got := address(); got != "192.0.2.7" {
			t.Error("somebody who reads the node's conditions wakes all pods")
		}
		l.agent.cluster.uplinkChanged() // somebody has told of a link
		l.settle(5 * time.Second)
		if got := address(); got != "192.0.2.9" {
			t.Errorf("after the change %s", got)
		}
	})
}
