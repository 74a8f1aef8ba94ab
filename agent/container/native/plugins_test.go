package native

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/net/link"
	"github.com/tinylet/tinylet/net/netns/nstest"
)

// recorder is a plugin that appends its input to a file, and does what a script says.
const recorder = `#!/bin/sh
dir=${0%/*}
{ echo "$CNI_COMMAND $CNI_CONTAINERID $CNI_IFNAME netns=${CNI_NETNS:+yes} $CNI_ARGS"; cat; echo; } >> "$dir/calls"
. "$dir/script"
`

type pluginLab struct {
	n   *PluginNetwork
	dir string
}

func newPluginLab(t *testing.T) *pluginLab {
	t.Helper()
	l := &pluginLab{dir: t.TempDir()}
	l.n = &PluginNetwork{ConfDir: filepath.Join(l.dir, "net.d"), PluginDirs: []string{filepath.Join(l.dir, "none"), l.dir}, CacheDir: filepath.Join(l.dir, "cache")}
	l.write(t, "recorder", recorder)
	l.script(t, `echo '{"cniVersion": "1.0.0", "interfaces": [{"name": "veth1"}, {"name": "eth0", "sandbox": "x"}], "ips": [
		{"address": "fd00::2/64", "interface": 1}, {"address": "10.1.0.2/24", "interface": 1}, {"address": "10.9.9.9/24", "interface": 0}]}'`)
	return l
}

func (l *pluginLab) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(l.n.ConfDir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(l.dir, name), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

func (l *pluginLab) script(t *testing.T, text string) {
	t.Helper()
	l.write(t, "script", text)
}

func (l *pluginLab) conflist(t *testing.T, version string) {
	t.Helper()
	l.write(t, "net.d/10-a.conflist", fmt.Sprintf(`{"cniVersion": %q, "name": "lab", "plugins": [
		{"type": "recorder", "capabilities": {"portMappings": true, "bandwidth": true, "dns": true, "cgroupPath": true, "io.kubernetes.cri.pod-annotations": true}}]}`, version))
	l.write(t, "net.d/20-b.conflist", "{") // not read
}

// calls returns what the plugin was called with since the last call.
func (l *pluginLab) calls(t *testing.T) (verbs []string, config map[string]any) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(l.dir, "calls"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(l.dir, "calls")); err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(string(data), "\n") {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "{") {
			config = nil
			if err := json.Unmarshal([]byte(line), &config); err != nil {
				t.Fatal(err)
			}
		} else if line != "" {
			verbs = append(verbs, line)
		}
	}
	return verbs, config
}

func sandboxConfig() *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata:    &runtimeapi.PodSandboxMetadata{Namespace: "default", Name: "web", Uid: "u1"},
		Annotations: map[string]string{annotationIngress: "1M"},
		DnsConfig:   &runtimeapi.DNSConfig{Servers: []string{"10.0.0.10"}},
		PortMappings: []*runtimeapi.PortMapping{
			{Protocol: runtimeapi.Protocol_UDP, ContainerPort: 53, HostPort: 5353, HostIp: "127.0.0.1"}, {ContainerPort: 80},
		},
		Linux: &runtimeapi.LinuxPodSandboxConfig{CgroupParent: "/kubepods/podu1"},
	}
}

func TestPluginNetwork(t *testing.T) {
	l := newPluginLab(t)
	l.conflist(t, "1.0.0")
	ns := nstest.New(t)
	path := fmt.Sprintf("/proc/self/fd/%d", ns.Fd())
	ips, err := l.n.Setup(t.Context(), "s1", path, sandboxConfig())
	if err != nil || cmp.Diff([]string{"10.1.0.2", "fd00::2"}, ips) != "" {
		t.Fatalf("Setup: %q, %v", ips, err)
	}
	h, err := link.OpenIn(ns)
	if err != nil {
		t.Fatal(err)
	}
	if up, err := h.LoopbackUp(); err != nil || !up {
		t.Errorf("the loopback interface is up: %v, %v", up, err)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	const arguments = "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web;K8S_POD_INFRA_CONTAINER_ID=s1;K8S_POD_UID=u1"
	verbs, config := l.calls(t)
	if diff := cmp.Diff([]string{"ADD s1 eth0 netns=yes " + arguments}, verbs); diff != "" {
		t.Error(diff)
	}
	want := map[string]any{
		"portMappings": []any{map[string]any{"hostPort": 5353., "containerPort": 53., "protocol": "udp", "hostIP": "127.0.0.1"}},
		"bandwidth":    map[string]any{"ingressRate": 1e6, "ingressBurst": 4294967295., "egressRate": 0., "egressBurst": 0.},
		"dns":          map[string]any{"nameservers": []any{"10.0.0.10"}},
		"cgroupPath":   "/kubepods/podu1", "io.kubernetes.cri.pod-annotations": map[string]any{annotationIngress: "1M"},
	}
	if diff := cmp.Diff(want, config["runtimeConfig"]); diff != "" {
		t.Error(diff)
	}
	// The result of before is handed over, also to another process after a boot.
	again := *l.n
	if err := again.Teardown(t.Context(), "s1", "", sandboxConfig()); err != nil {
		t.Fatal(err)
	}
	verbs, config = l.calls(t)
	if diff := cmp.Diff([]string{"DEL s1 eth0 netns= " + arguments}, verbs); diff != "" {
		t.Error(diff)
	}
	if config["prevResult"] == nil {
		t.Error("DEL has no result of before")
	}
}

func TestPluginNetworkFailures(t *testing.T) {
	ns := nstest.New(t)
	path := fmt.Sprintf("/proc/self/fd/%d", ns.Fd())
	for _, tt := range []struct{ name, script, setup, teardown string }{
		{"an error in the format of the specification", `echo '{"code": 11, "msg": "try later"}'; exit 1`, "try later", "try later"},
		{"no output", "echo broken >&2; exit 3", "broken", "broken"},
		{"not found", `echo '{"code": 7, "msg": "container s1 not found"}'; exit 1`, "not found", ""},
		{"no file", `echo '{"code": 7, "msg": "open /x: no such file or directory"}'; exit 1`, "no such file", ""},
		{"no JSON", "echo hello", "invalid character", ""},
		{"no addresses", `echo '{"cniVersion": "1.0.0"}'`, "no address of eth0", ""},
		{"an interface too many", `echo '{"cniVersion": "1.0.0", "ips": [{"address": "10.1.0.2/24", "interface": 1}]}'`, "interface 1 of 0", ""},
		{"endless output", "yes", "more than 1048576 bytes", "more than 1048576 bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newPluginLab(t)
			l.conflist(t, "1.0.0")
			l.script(t, tt.script)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			if _, err := l.n.Setup(ctx, "s1", path, sandboxConfig()); err == nil || !strings.Contains(err.Error(), tt.setup) {
				t.Errorf("Setup: %v, want %q", err, tt.setup)
			}
			if err := l.n.Teardown(ctx, "s1", "", sandboxConfig()); tt.teardown == "" && err != nil || tt.teardown != "" && (err == nil || !strings.Contains(err.Error(), tt.teardown)) {
				t.Errorf("Teardown: %v, want %q", err, tt.teardown)
			}
		})
	}
}

// TestPluginNetworkEnds ends plugins that hang, and does not wait for their children.
func TestPluginNetworkEnds(t *testing.T) {
	ns := nstest.New(t)
	path := fmt.Sprintf("/proc/self/fd/%d", ns.Fd())
	l := newPluginLab(t)
	l.conflist(t, "1.1.0")
	l.script(t, "exec sleep 60")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := l.n.Setup(ctx, "s1", path, sandboxConfig()); err == nil || !strings.Contains(err.Error(), "deadline exceeded") {
		t.Errorf("Setup: %v", err)
	}
	l.script(t, `sleep 60 & echo '{"cniVersion": "1.0.0", "ips": [{"address": "10.1.0.2/24"}]}'`)
	if ips, err := l.n.Setup(t.Context(), "s1", path, sandboxConfig()); err != nil || len(ips) != 1 {
		t.Errorf("a plugin with a child: %q, %v", ips, err)
	}
}

func TestPluginNetworkProblem(t *testing.T) {
	for _, tt := range []struct{ name, file, text, script, want string }{
		{"none", "", "", "", "no CNI configuration in"},
		{"not JSON", "net.d/1.conflist", "{", "", "1.conflist"},
		{"no plugins", "net.d/1.conflist", `{"cniVersion": "1.0.0", "name": "x", "plugins": []}`, "", "1.conflist"},
		{"a directory", "net.d/1.conflist/x", "", "", "no CNI configuration in"},
		{"large", "net.d/1.conflist", strings.Repeat(" ", maxConflist+1), "", "not a regular file"},
		{"without STATUS", "net.d/1.conflist", `{"cniVersion": "1.0.0", "name": "x", "plugins": [{"type": "recorder"}]}`, "exit 1", ""},
		{"ready", "net.d/1.conflist", `{"cniVersion": "1.1.0", "name": "x", "plugins": [{"type": "recorder"}]}`, "exit 0", ""},
		{"one plugin", "net.d/1.conf", `{"cniVersion": "1.0.0", "name": "x", "type": "recorder"}`, "exit 1", ""},
		{"not ready", "net.d/1.conflist", `{"cniVersion": "1.1.0", "name": "x", "plugins": [{"type": "recorder"}]}`, `echo '{"code": 50, "msg": "no route"}'; exit 1`, "no route"},
		{"no program", "net.d/1.conflist", `{"cniVersion": "1.1.0", "name": "x", "plugins": [{"type": "other"}]}`, "", `CNI plugin "other" is not in`},
		{"a path", "net.d/1.conflist", `{"cniVersion": "1.1.0", "name": "x", "plugins": [{"type": "../recorder"}]}`, "", "no valid name"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newPluginLab(t)
			l.script(t, tt.script)
			if tt.file != "" {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(l.dir, tt.file)), 0o755); err != nil {
					t.Fatal(err)
				}
				l.write(t, tt.file, tt.text)
			}
			if err := l.n.Problem(t.Context()); tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}
