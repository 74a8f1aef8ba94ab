package plugin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/net/cni"
	"github.com/tinylet/tinylet/net/link"
	"github.com/tinylet/tinylet/net/netns/nstest"
	"github.com/tinylet/tinylet/net/nft"
	"github.com/tinylet/tinylet/net/podnet"
)

// node is a node with its own network namespace and /run.
type node struct {
	testing.TB
	host       *os.File
	run, state string // directories
	containers int
}

func newNode(t testing.TB) *node {
	t.Helper()
	dir := t.TempDir()
	n := &node{TB: t, host: nstest.New(t), run: filepath.Join(dir, "run"), state: filepath.Join(dir, "state")}
	if err := os.Mkdir(n.run, 0o755); err != nil {
		t.Fatal(err)
	}
	return n
}

// on calls do in the namespaces of the node. Its thread is not used again.
func (n *node) on(do func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- errors.Join(n.enter(), do())
	}()
	return <-done
}

func (n *node) enter() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount(n.run, "/run", "", unix.MS_BIND, ""); err != nil {
		return err
	}
	return unix.Setns(int(n.host.Fd()), unix.CLONE_NEWNET)
}

// container is a container with its network namespace.
type container struct {
	id string
	ns *os.File
}

func (n *node) newContainer() *container {
	n.Helper()
	n.containers++
	return &container{id: fmt.Sprintf("%064x", n.containers), ns: nstest.New(n)}
}

// path returns the path of the namespace, also for other processes.
func (c *container) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), c.ns.Fd()) }

// environment returns the environment variables of the runtime.
func (c *container) environment() map[string]string {
	return map[string]string{
		"CNI_CONTAINERID": c.id, "CNI_IFNAME": "eth0", "CNI_NETNS": c.path(), "CNI_PATH": "/opt/cni/bin",
		"CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web;K8S_POD_INFRA_CONTAINER_ID=" + c.id + ";K8S_POD_UID=0123",
	}
}

// config returns the configuration of a network, with the members of more at its end.
func (n *node) config(version string, more ...string) string {
	members := append([]string{
		`"cniVersion":"` + version + `","name":"pods","type":"` + cni.Type + `"`,
		`"capabilities":{"bandwidth":true,"ips":true,"mac":true,"portMappings":true}`,
		`"bridge":"pods0","mtu":1400,"masquerade":true,"hairpin":true,"stateDir":"` + n.state + `"`,
		`"ranges":[{"subnet":"10.88.0.0/24"},{"subnet":"fd00:88::/64"}]`,
	}, more...)
	return "{" + strings.Join(members, ",") + "}"
}

// answer is the output of the plugin: a result or an error.
type answer struct {
	CNIVersion        string
	SupportedVersions []string
	Interfaces        []struct {
		Name, Mac, Sandbox string
		MTU                int
	}
	IPs []struct {
		Version, Address, Gateway string
		Interface                 *int
	}
	Routes       []struct{ Dst, GW string }
	Code         cni.Code
	Msg, Details string

	text string
}

// call calls the plugin for a container, or for none.
func (n *node) call(verb string, c *container, config string) answer {
	n.Helper()
	env := map[string]string{"CNI_PATH": "/opt/cni/bin"}
	if c != nil {
		env = c.environment()
	}
	env["CNI_COMMAND"] = verb
	return n.callWith(env, config)
}

func (n *node) callWith(env map[string]string, config string) (a answer) {
	n.Helper()
	var out, errs bytes.Buffer
	exit := 0
	if err := n.on(func() error {
		exit = Run(func(name string) string { return env[name] }, strings.NewReader(config), &out, &errs)
		return nil
	}); err != nil {
		n.Fatal(err)
	}
	if a.text = out.String(); a.text != "" {
		if err := json.Unmarshal(out.Bytes(), &a); err != nil {
			n.Fatalf("%s answers %s: %v", env["CNI_COMMAND"], a.text, err)
		}
	}
	if (exit != 0) != (a.Code != 0) || errs.Len() > 0 {
		n.Errorf("%s exits with %d, says %s and writes %q", env["CNI_COMMAND"], exit, a.text, errs.String())
	}
	return a
}

// must is call that fails the test after an error.
func (n *node) must(verb string, c *container, config string) answer {
	n.Helper()
	a := n.call(verb, c, config)
	if a.Code != 0 {
		n.Fatalf("%s: %s", verb, a.text)
	}
	return a
}

// left returns the links, ports and leases of containers.
func (n *node) left() string {
	n.Helper()
	var b strings.Builder
	err := n.on(func() error {
		if err := n.links(&b); err != nil {
			return err
		}
		if err := ports(&b); err != nil {
			return err
		}
		for _, dir := range []string{n.state, cni.DefaultStateDir} {
			p, err := podnet.New(cni.Config{Bridge: "pods0", StateDir: dir})
			if err != nil {
				return err
			}
			defer p.Close()
			entries, err := p.List()
			if err != nil {
				return err
			}
			for _, e := range entries {
				fmt.Fprintf(&b, "lease %v of %.64s\n", e.Addresses, e.ID.ContainerID)
			}
		}
		return nil
	})
	if err != nil {
		n.Fatal(err)
	}
	return b.String()
}

func (n *node) links(b *strings.Builder) error {
	h, err := link.Open()
	if err != nil {
		return err
	}
	defer h.Close()
	all, err := h.Links()
	for _, l := range all {
		if l.Kind == "veth" {
			fmt.Fprintf(b, "link %s %q\n", l.Name, l.Alias)
		}
	}
	return err
}

// ports writes the host ports of containers.
func ports(b *strings.Builder) error {
	table, err := nft.Open()
	if err != nil {
		return err
	}
	defer table.Close()
	all, err := table.Ports()
	if errors.Is(err, nft.ErrNoTable) {
		return nil
	}
	lines := make([]string, len(all))
	for i, p := range all {
		lines[i] = fmt.Sprintf("port %v to %v port %d\n", p, p.Pod, p.Target)
	}
	slices.Sort(lines) // the kernel has no order
	b.WriteString(strings.Join(lines, ""))
	return err
}
