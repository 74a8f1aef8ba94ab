package config

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

const (
	kubeletHead = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	tinyletHead = "apiVersion: tinylet.dev/v1alpha1\nkind: TinyletConfiguration\n"
)

var addrs = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

func TestPrecedence(t *testing.T) {
	type row struct {
		name    string
		base    string
		dropIns []string
		args    []string
		get     func(*Config) any
		want    any
	}
	maxPods := func(c *Config) any { return c.Kubelet.MaxPods }
	eviction := func(c *Config) any { return c.Kubelet.EvictionHard }
	dns := func(c *Config) any { return c.Kubelet.ClusterDNS }
	gates := func(c *Config) any { return c.Kubelet.FeatureGates }
	format := func(c *Config) any { return c.Tinylet.LogFormat }
	for _, tc := range []row{
		{name: "default", get: maxPods, want: int32(110)},
		{name: "file over default", base: kubeletHead + "maxPods: 7", get: maxPods, want: int32(7)},
		{name: "drop-in over file", base: kubeletHead + "maxPods: 7", dropIns: []string{kubeletHead + "maxPods: 8"}, get: maxPods, want: int32(8)},
		{name: "later drop-in wins", dropIns: []string{kubeletHead + "maxPods: 8", kubeletHead + "maxPods: 9"}, get: maxPods, want: int32(9)},
		{name: "flag over all", base: kubeletHead + "maxPods: 7", dropIns: []string{kubeletHead + "maxPods: 8"}, args: []string{"--max-pods=5"}, get: maxPods, want: int32(5)},
		{name: "flag with an underscore", args: []string{"--max_pods=5"}, get: maxPods, want: int32(5)},
		{name: "last flag wins", args: []string{"--max-pods=5", "--max-pods=6"}, get: maxPods, want: int32(6)},
		{name: "null gives the default back", base: kubeletHead + "maxPods: 7", dropIns: []string{kubeletHead + "maxPods: null"}, get: maxPods, want: int32(110)},

		{
			name: "drop-in adds to the default thresholds", dropIns: []string{kubeletHead + "evictionHard: {memory.available: 20Mi}"},
			get: eviction, want: map[string]string{"memory.available": "20Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%", "imagefs.available": "15%", "imagefs.inodesFree": "5%"},
		},
		{name: "file replaces the default thresholds", base: kubeletHead + "evictionHard: {memory.available: 20Mi}", get: eviction, want: map[string]string{"memory.available": "20Mi"}},
		{
			name: "map flag replaces the file's", base: kubeletHead + "evictionHard: {memory.available: 20Mi}", args: []string{"--eviction-hard=pid.available<10%", "--eviction-hard=nodefs.available<1Gi"},
			get: eviction, want: map[string]string{"pid.available": "10%", "nodefs.available": "1Gi"},
		},
		{name: "no thresholds are a choice", base: kubeletHead + "evictionHard: {}", dropIns: []string{kubeletHead + "maxPods: 7"}, get: eviction, want: map[string]string{}},
		{name: "empty map flag empties", args: []string{"--eviction-hard="}, get: eviction, want: map[string]string{}},

		{name: "list in a drop-in replaces", base: kubeletHead + "clusterDNS: [10.0.0.1, 10.0.0.2]", dropIns: []string{kubeletHead + "clusterDNS: [10.0.0.3]"}, get: dns, want: []string{"10.0.0.3"}},
		{name: "list flag replaces, then grows", base: kubeletHead + "clusterDNS: [10.0.0.1]", args: []string{"--cluster-dns=10.0.0.2,10.0.0.3", "--cluster-dns", "10.0.0.4"}, get: dns, want: []string{"10.0.0.2", "10.0.0.3", "10.0.0.4"}},
		{name: "feature gates add up", base: kubeletHead + "featureGates: {A: true, B: true}", args: []string{"--feature-gates=B=false,C=true"}, get: gates, want: map[string]bool{"A": true, "B": false, "C": true}},

		{name: "text by default", get: format, want: LogText},
		{name: "the kubelet's format counts", base: kubeletHead + "logging: {format: json}", get: format, want: LogJSON},
		{name: "tinylet's format counts more", base: kubeletHead + "logging: {format: json}\n---\n" + tinyletHead + "logFormat: text", get: format, want: LogText},
		{name: "the flag counts most", base: tinyletHead + "logFormat: text", args: []string{"--logging-format=json"}, get: format, want: LogJSON},
		{
			name: "tinylet's document in a drop-in", base: tinyletHead + "logFormat: json\nsocketPath: /a", dropIns: []string{tinyletHead + "socketPath: /b"},
			get: func(c *Config) any { return c.Tinylet.LogFormat + c.Tinylet.SocketPath }, want: "json/b",
		},
		{name: "a flag does not move other defaults", args: []string{"--node-status-update-frequency=20s"}, get: func(c *Config) any { return c.Kubelet.NodeStatusReportFrequency.Duration.String() }, want: "5m0s"},
		{name: "bool flag alone is true", args: []string{"--seccomp-default"}, get: func(c *Config) any { return *c.Kubelet.SeccompDefault }, want: true},
		{name: "bool flag with a value", args: []string{"--fail-swap-on=false"}, get: func(c *Config) any { return *c.Kubelet.FailSwapOn }, want: false},
		{name: "JSON is read too", base: `{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","maxPods":3}`, get: maxPods, want: int32(3)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg, _ := mustBuild(t, tc.args, optional(tc.base), tc.dropIns...)
			if diff := cmp.Diff(tc.want, tc.get(cfg)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestStatusPageDefault checks that the page is open without a token only where no
// other tenant's pods are shown, or where that is configured.
func TestStatusPageDefault(t *testing.T) {
	const joined, token = "--kubeconfig=/etc/kubernetes/kubelet.conf", "statusPageTokenFile: /etc/token"
	for _, tt := range []struct {
		name, set  string
		args       []string
		page, warn bool
	}{
		{name: "standalone", page: true},
		{name: "standalone, asked for", set: "statusPage: true", page: true},
		{name: "standalone, switched off", set: "statusPage: false"},
		{name: "joined", args: []string{joined}},
		{name: "joined, with a token", set: token, args: []string{joined}, page: true},
		{name: "joined, asked for", set: "statusPage: true", args: []string{joined}, page: true, warn: true},
		{name: "joined, asked for with a token", set: "statusPage: true\n" + token, args: []string{joined}, page: true},
		{name: "joined, switched off", set: "statusPage: false", args: []string{joined}},
	} {
		cfg, warnings := mustBuild(t, tt.args, &file{"/etc/c.yaml", []byte(tinyletHead + tt.set)})
		warned := slices.ContainsFunc(warnings, func(w Warning) bool { return w.Message == openStatusPage })
		if got := *cfg.Tinylet.StatusPage; got != tt.page || warned != tt.warn {
			t.Errorf("%s: page %v, warned %v: want %v, %v", tt.name, got, warned, tt.page, tt.warn)
		}
		if err := Validate(cfg); err != nil && len(tt.args) > 0 {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// TestPullVerification checks that the agent warns that it does not verify pull
// credentials.
func TestPullVerification(t *testing.T) {
	for policy, warn := range map[string]int{
		"": 0, "NeverVerify": 0, "NeverVerifyPreloadedImages": 1, "NeverVerifyAllowlistedImages": 1, "AlwaysVerify": 1,
	} {
		cfg, warnings := mustBuild(t, nil, &file{"/etc/c.yaml", []byte(kubeletHead + "imagePullCredentialsVerificationPolicy: " + policy)})
		n := 0
		for _, w := range warnings {
			if w.Message == notHonoured && w.Attrs[0].Value.String() == "imagePullCredentialsVerificationPolicy" {
				n++
			}
		}
		want := policy
		if want == "" {
			want = "NeverVerify"
		}
		if string(cfg.Kubelet.ImagePullCredentialsVerificationPolicy) != want || n != warn {
			t.Errorf("%q: %s, %d warnings", policy, cfg.Kubelet.ImagePullCredentialsVerificationPolicy, n)
		}
	}
}

func TestLenient(t *testing.T) {
	for _, tc := range []struct{ name, base, offender string }{
		{"unknown field", "maxPods: 7\nmaxPodz: 8", `unknown field "maxPodz"`},
		{"unknown nested field", "maxPods: 7\nauthentication: {x510: {}}", `unknown field "authentication.x510"`},
		{"field in the wrong case", "maxPods: 7\nMaxPods: 8", `unknown field "MaxPods"`},
		{"duplicate key", "maxPods: 8\nmaxPods: 7", `"maxPods" already set in map`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, where := range []string{"file", "drop-in"} {
				var (
					cfg      *Config
					warnings []Warning
				)
				if where == "file" {
					cfg, warnings = mustBuild(t, nil, optional(kubeletHead+tc.base))
				} else {
					cfg, warnings = mustBuild(t, nil, nil, kubeletHead+tc.base)
				}
				if cfg.Kubelet.MaxPods != 7 {
					t.Errorf("%s: maxPods = %d, want 7: the rest still counts", where, cfg.Kubelet.MaxPods)
				}
				if text := fmt.Sprint(warnings); !strings.Contains(text, tc.offender) {
					t.Errorf("%s: warnings %s do not name %s", where, text, tc.offender)
				}
			}
		})
	}
}

func TestRejected(t *testing.T) {
	for _, tc := range []struct{ name, base, want string }{
		{"empty", "", "no configuration"},
		{"comments", "# nothing\n---\n# here", "no configuration"},
		{"not YAML", "\t{", "document 1"},
		{"binary", "\x00\x01\x02", "document 1"},
		{"a list", "- a", "document 1: not a mapping"},
		{"a word", "hello", "document 1: not a mapping"},
		{"no kind", "maxPods: 7", `document 1: kind "" is unknown`},
		{"another kind", "apiVersion: v1\nkind: Pod", `document 1: kind "Pod" is unknown`},
		{"another version", "apiVersion: kubelet.config.k8s.io/v1\nkind: KubeletConfiguration", `document 1: apiVersion "kubelet.config.k8s.io/v1" of KubeletConfiguration is unknown: expected kubelet.config.k8s.io/v1beta1`},
		{"second document is named", kubeletHead + "---\n---\n# empty\n---\nkind: Pod", `document 2: kind "Pod" is unknown`},
		{"two of a kind", kubeletHead + "---\n" + kubeletHead, "document 2: second KubeletConfiguration"},
		{"two of ours", tinyletHead + "---\n" + tinyletHead, "document 2: second TinyletConfiguration"},
		{"wrong type", kubeletHead + "maxPods: many", "field maxPods"},
		{"too large", kubeletHead + "maxPods: 3000000000", "field maxPods"},
		{"bad duration", kubeletHead + "syncFrequency: soon", "field syncFrequency"},
		{"unknown field of ours", tinyletHead + "logFormatt: text", `unknown field "logFormatt"`},
		{"duplicate key of ours", tinyletHead + "logFormat: text\nlogFormat: json", `"logFormat" already set`},
		{"wrong type of ours", tinyletHead + "logFormat: [text]", "field logFormat"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, _, err := newFlags(t).build(&file{"/etc/c.yaml", []byte(tc.base)}, nil, hostname, 0)
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.HasPrefix(err.Error(), "/etc/c.yaml: ") {
				t.Errorf("error = %v, want the file's name and %q", err, tc.want)
			}
		})
	}
}

func TestDerived(t *testing.T) {
	cfg, warnings := mustBuild(t, []string{
		"--hostname-override=Board-7", "--node-ip=192.168.1.7,fd00::7", "--node-labels=a=b,c", "--root-dir=/data/kubelet/",
		"--container-runtime-endpoint=/run/c.sock", "--manifest-url=http://h/p", "--manifest-url-header=A:b,A:c", "--manifest-url-header", "D: e",
	}, nil)
	if len(warnings) > 0 {
		t.Errorf("warnings: %v", warnings)
	}
	if err := Validate(cfg); err != nil {
		t.Errorf("Validate: %v", err)
	}
	type facts struct {
		Name            string
		IPs             []netip.Addr
		Labels          map[string]string
		Runtime, Images string
		Headers         map[string][]string
		Paths           Paths
	}
	want := facts{
		Name:    "board-7",
		IPs:     []netip.Addr{netip.MustParseAddr("192.168.1.7"), netip.MustParseAddr("fd00::7")},
		Labels:  map[string]string{"a": "b", "c": ""},
		Runtime: "unix:///run/c.sock", Images: "unix:///run/c.sock",
		Headers: map[string][]string{"A": {"b", "c"}, "D": {"e"}},
		Paths: Paths{
			Root: "/data/kubelet", Pods: "/data/kubelet/pods", State: "/data/kubelet/tinylet", PKI: "/var/lib/kubelet/pki",
			PodLogs: "/var/log/pods", ContainerLogs: "/var/log/containers",
		},
	}
	kc := &cfg.Kubelet
	got := facts{cfg.NodeName, cfg.NodeIPs, cfg.NodeLabels, kc.ContainerRuntimeEndpoint, kc.ImageServiceEndpoint, kc.StaticPodURLHeader, cfg.Paths}
	if diff := cmp.Diff(want, got, addrs); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestHostName(t *testing.T) {
	cfg, _ := mustBuild(t, nil, nil)
	if cfg.NodeName != "raspberry" {
		t.Errorf("NodeName = %q, want the host's name in lower case", cfg.NodeName)
	}
	broken := func() (string, error) { return "", errors.New("no such file") }
	if _, _, err := newFlags(t).build(nil, nil, broken, 0); err == nil || !strings.Contains(err.Error(), "--hostname-override") {
		t.Errorf("error = %v, want one that names the remedy", err)
	}
}

func TestLoadFromDisk(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "etc/config.yaml", kubeletHead+"staticPodPath: manifests\nmaxPods: 1\nauthentication: {x509: {clientCAFile: ca.crt}}")
	write(t, dir, "d/20-b.conf", kubeletHead+"maxPods: 3\ntlsCertFile: tls.crt")
	write(t, dir, "d/10-a.conf", kubeletHead+"maxPods: 2\nclusterDomain: a.local")
	write(t, dir, "d/15/x.conf", kubeletHead+"clusterDomain: x.local")
	write(t, dir, "d/30.yaml", "not: read")
	write(t, dir, "d/README", "not read")
	if err := os.Symlink("d", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	cfg, warnings, err := newFlags(t, "--config", dir+"/etc/config.yaml", "--config-dir", dir+"/link", "--hostname-override=n").Load(0)
	if err != nil {
		t.Fatal(err)
	}
	kc := &cfg.Kubelet
	got := []string{kc.StaticPodPath, kc.Authentication.X509.ClientCAFile, kc.TLSCertFile, kc.ClusterDomain, fmt.Sprint(kc.MaxPods)}
	want := []string{dir + "/etc/manifests", dir + "/etc/ca.crt", dir + "/d/tls.crt", "x.local", "3"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if text := fmt.Sprint(warnings); !strings.Contains(text, "30.yaml") || strings.Contains(text, "README") {
		t.Errorf("warnings = %s, want one about 30.yaml only", text)
	}
}

func TestUnreadable(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "big.yaml", kubeletHead+strings.Repeat("# filler\n", maxFileBytes/8))
	write(t, dir, "d/bad.conf", "kind: Pod")
	for _, tc := range []struct {
		name, want string
		args       []string
	}{
		{"missing file", "missing.yaml: no such file", []string{"--config", dir + "/missing.yaml"}},
		{"folder as file", "is a directory", []string{"--config", dir}},
		{"large file", "more than", []string{"--config", dir + "/big.yaml"}},
		{"missing folder", "missing: no such file", []string{"--config-dir", dir + "/missing"}},
		{"file as folder", "is not a directory", []string{"--config-dir", dir + "/big.yaml"}},
		{"bad drop-in", "bad.conf: document 1: kind", []string{"--config-dir", dir + "/d"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, _, err := newFlags(t, tc.args...).Load(0); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error = %v, want %q", err, tc.want)
			}
		})
	}
}

func hostname() (string, error) { return "Raspberry", nil }

func newFlags(t testing.TB, args ...string) *Flags {
	t.Helper()
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	f := NewFlags(set)
	if err := set.Parse(args); err != nil {
		t.Fatalf("parse %q: %v", args, err)
	}
	return f
}

func mustBuild(t *testing.T, args []string, base *file, dropIns ...string) (*Config, []Warning) {
	t.Helper()
	var files []file
	for i, text := range dropIns {
		files = append(files, file{fmt.Sprintf("/etc/d/%d.conf", i), []byte(text)})
	}
	cfg, warnings, err := newFlags(t, args...).build(base, files, hostname, 0)
	if err != nil {
		t.Fatal(err)
	}
	return cfg, warnings
}

func optional(text string) *file {
	if text == "" {
		return nil
	}
	return &file{"/etc/c.yaml", []byte(text)}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
