package plugin

import (
	"net"
	"strings"
	"testing"

	"github.com/tinylet/tinylet/net/cni"
	"github.com/tinylet/tinylet/net/netns"
)

// broken are configurations without a usable field.
var broken = map[string]string{
	"empty":       ``,
	"cut":         `{"cniVersion":"1.0.0","name":"po`,
	"no object":   `[1,2]`,
	"mistyped":    `{"cniVersion":1,"name":[],"ranges":{},"mtu":"x","stateDir":7,"bridge":{}}`,
	"refused":     `{"cniVersion":"9.9.9","name":"../x","ranges":[{"subnet":"x"}],"runtimeConfig":{"portMappings":[{"hostPort":70000}]}}`,
	"other":       `{"cniVersion":"1.0.0","name":"pods","type":"tinylet-cni","ipam":{"type":"dhcp"},"bridge":"other0"}`,
	"not a range": `{"cniVersion":"1.0.0","name":"pods","type":"tinylet-cni","ranges":[]}`,
}

// TestDelOfBroken tears down with the environment alone.
func TestDelOfBroken(t *testing.T) {
	for name, config := range broken {
		for _, netns := range []string{"there", "gone", "unsaid", "the host's"} {
			if config != "" && netns != "gone" {
				continue // the namespace is not in the configuration
			}
			t.Run(name+" and the namespace "+netns, func(t *testing.T) {
				n := newNode(t)
				c := n.newContainer()
				n.must("ADD", c, n.config("1.0.0", containerd, `"stateDir":"`+cni.DefaultStateDir+`"`))
				env := c.environment()
				env["CNI_COMMAND"] = "DEL"
				switch netns {
				case "gone":
					env["CNI_NETNS"] = "/run/netns/" + c.id
				case "unsaid":
					delete(env, "CNI_NETNS")
				case "the host's":
					env["CNI_NETNS"] = "/proc/thread-self/ns/net"
				}
				for range 2 {
					if a := n.callWith(env, config); a.text != "" {
						t.Fatal(a.text)
					}
					if left := n.left(); left != "" {
						t.Errorf("left:\n%s", left)
					}
				}
			})
		}
	}
}

// TestDelWithoutState calls DEL without the directory of the lease. DEL removes the
// container's network from the kernel, and GC removes the lease.
func TestDelWithoutState(t *testing.T) {
	n := newNode(t)
	gone, kept := n.newContainer(), n.newContainer()
	n.must("ADD", gone, n.config("1.1.0", containerd))
	n.must("ADD", kept, n.config("1.1.0"))
	n.must("DEL", gone, "")
	if left := n.left(); strings.Count(left, "link") != 1 || strings.Contains(left, "port") || strings.Count(left, "lease") != 2 {
		t.Errorf("left:\n%s", left)
	}
	n.must("GC", nil, n.config("1.1.0", `"cni.dev/valid-attachments":[{"containerID":"`+kept.id+`","ifname":"eth0"}]`))
	if left := n.left(); strings.Count(left, "lease") != 1 || !strings.Contains(left, kept.id) {
		t.Errorf("left:\n%s", left)
	}
}

// TestCollection collects with the keys of the specification and of its draft.
func TestCollection(t *testing.T) {
	n := newNode(t)
	var all []*container
	for range 4 {
		c := n.newContainer()
		all = append(all, c)
		n.must("ADD", c, n.config("1.1.0"))
	}
	more := n.config("1.1.0", strings.ReplaceAll(crio, "192.0.2.1", ""))
	n.must("ADD", all[0], more)
	n.must("ADD", all[1], strings.NewReplacer("8080", "8081", "5353", "5354").Replace(more))
	before := n.left()
	if a := n.call("GC", nil, n.config("1.1.0")); a.Code != cni.CodeInvalidConfig || n.left() != before {
		t.Errorf("without a list: %s, and there is\n%s", a.text, n.left())
	}
	if a := n.call("GC", nil, n.config("1.0.0", `"cni.dev/valid-attachments":[]`)); a.Code != cni.CodeIncompatibleVersion || n.left() != before {
		t.Errorf("in a version that has none: %s, and there is\n%s", a.text, n.left())
	}
	valid := func(some ...*container) string {
		var list []string
		for _, c := range some {
			list = append(list, `{"containerID":"`+c.id+`","ifname":"eth0"}`, `{"containerID":"`+c.id+`","ifname":"eth1"}`)
		}
		return "[" + strings.Join(list, ",") + "]"
	}
	n.must("GC", nil, n.config("1.1.0", `"cni.dev/valid-attachments":`+valid(all...)))
	if left := n.left(); left != before {
		t.Errorf("left of what is all valid:\n%s", left)
	}
	n.must("GC", nil, n.config("1.1.0", `"cni.dev/attachments":`+valid(all[1:3]...)))
	left := n.left()
	if strings.Count(left, "link") != 2 || strings.Count(left, "lease") != 2 || strings.Count(left, "/TCP") != 2 || strings.Count(left, "/UDP") != 2 ||
		!strings.Contains(left, all[1].id) || !strings.Contains(left, all[2].id) || !strings.Contains(left, "8081/TCP") {
		t.Errorf("left:\n%s", left)
	}
	n.must("GC", nil, n.config("1.1.0", `"cni.dev/valid-attachments":null`))
	if left := n.left(); left != "" {
		t.Errorf("left of what is not valid at all:\n%s", left)
	}
}

// TestRefused checks the errors of ADD, and that they leave nothing.
func TestRefused(t *testing.T) {
	const third = `"ranges":[{"subnet":"10.88.0.0/30"}]` // the gateway and one container
	n := newNode(t)
	if err := netns.Do(n.host, func() error {
		s, err := net.Listen("tcp4", "127.0.0.1:7070")
		if err == nil {
			t.Cleanup(func() { s.Close() })
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	first := n.newContainer()
	n.must("ADD", first, n.config("1.0.0", third, `"runtimeConfig":{"portMappings":[{"hostPort":8080,"containerPort":80}]}`))
	before := n.left()
	wide := strings.Replace(third, "/30", "/24", 1)
	for name, row := range map[string]struct {
		config  string
		code    cni.Code
		message string // in either text
	}{
		"exhausted":           {n.config("1.0.0", third), cni.CodeTryAgainLater, "no free address"},
		"a port of a pod's":   {n.config("1.0.0", wide, `"runtimeConfig":{"portMappings":[{"hostPort":8080,"containerPort":81}]}`), cni.CodeInternal, "host port *:8080/TCP is taken by " + first.id},
		"a port of the host":  {n.config("1.0.0", wide, `"runtimeConfig":{"portMappings":[{"hostPort":7070,"containerPort":81}]}`), cni.CodeInternal, "port 7070/TCP of the host is in use by a process"},
		"a port of no family": {n.config("1.0.0", wide, `"runtimeConfig":{"portMappings":[{"hostPort":9090,"containerPort":81,"hostIP":"::1"}]}`), cni.CodeInternal, "no address of that family"},
		"no network":          {n.config("1.0.0", `"refuse":"give the node a network"`), cni.CodeInvalidConfig, "give the node a network"},
		"no range and no why": {n.config("1.0.0", `"ranges":[]`), cni.CodeInvalidConfig, "ranges: is missing"},
		"two of a family":     {n.config("1.0.0", `"ranges":[{"subnet":"10.88.0.0/24"},{"subnet":"10.89.0.0/24"}]`), cni.CodeInternal, "of the same family"},
		"out of range":        {n.config("1.0.0", wide, `"runtimeConfig":{"ips":["10.99.0.1"]}`), cni.CodeInternal, "10.99.0.1"},
		"another plugin's":    {n.config("1.0.0", wide, `"ipam":{"type":"host-local"}`), cni.CodeUnsupportedField, "ipam.type: "},
	} {
		t.Run(name, func(t *testing.T) {
			n.TB = t
			a := n.call("ADD", n.newContainer(), row.config)
			if a.Code != row.code || strings.Count(a.Msg+": "+a.Details, row.message) != 1 {
				t.Errorf("got %s", a.text)
			}
			if left := n.left(); left != before {
				t.Errorf("left:\n%s", left)
			}
		})
	}
	n.TB = t
	t.Run("no namespace", func(t *testing.T) {
		n.TB = t
		for path, want := range map[string]string{"/run/netns/nowhere": "/run/netns/nowhere", "/proc/self/status": "not a network namespace", "/dev/null": "not a network namespace", "/proc/thread-self/ns/net": "the plugin's own"} {
			env := n.newContainer().environment()
			env["CNI_COMMAND"], env["CNI_NETNS"] = "ADD", path
			if a := n.callWith(env, n.config("1.0.0", wide)); a.Code == 0 || !strings.Contains(a.Msg+": "+a.Details, want) {
				t.Errorf("%s: got %s", path, a.text)
			}
		}
		if left := n.left(); left != before {
			t.Errorf("left:\n%s", left)
		}
	})
	n.TB = t
	// DEL succeeds for a configuration with refuse.
	n.must("DEL", first, n.config("1.0.0", `"refuse":"give the node a network"`))
	if left := n.left(); left != "" {
		t.Errorf("left:\n%s", left)
	}
	n.must("ADD", n.newContainer(), n.config("1.0.0", third))
}
