package provision

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f owner@desk"

const full = `hostname: edge-01
timeZone: Europe/Berlin
network:
  addresses: [192.168.1.20/24, "2001:db8::20/64"]
  gateway: 192.168.1.1
  nameservers: [192.168.1.1, "2001:db8::1"]
  wifi: {ssid: "two \"words", passphrase: "pass \"word", country: DE}
ssh:
  authorizedKeys: ["` + key + `"]
join:
  server: https://10.0.0.1:6443
  token: abcdef.0123456789abcdef
  caCertHashes: ["sha256:7c2e69131a36ae2a042a339b33381c6d0d43887e2de83720eff5359e26aec866"]
`

// authority is the form of a certificate, in PEM.
const authority = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"

var withKubeconfig = "kubeconfig: 'clusters: [{cluster: {server: \"https://10.0.0.1:6443\", certificate-authority-data: " + base64.StdEncoding.EncodeToString([]byte(authority)) + "}}]'\n"

func TestKubeconfig(t *testing.T) {
	c, err := Parse([]byte(withKubeconfig))
	if err != nil {
		t.Fatal(err)
	}
	files, err := c.Files()
	if err != nil {
		t.Fatal(err)
	}
	want := []File{{authorityFile, 0o644, []byte(authority)}, {kubeconfigFile, 0o600, []byte(c.Kubeconfig)}}
	if diff := cmp.Diff(want, files); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestFiles(t *testing.T) {
	c, err := Parse([]byte(full))
	if err != nil {
		t.Fatal(err)
	}
	files, err := c.Files()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, f := range files {
		got[f.Path] = f.Mode.String() + "\n" + string(f.Data)
	}
	want := map[string]string{
		"etc/hostname": "-rw-r--r--\nedge-01\n",
		"etc/hosts":    "-rw-r--r--\n127.0.0.1\tlocalhost\n::1\tlocalhost\n127.0.1.1\tedge-01\n",
		"etc/timezone": "-rw-r--r--\nEurope/Berlin\n",
		"etc/network/interfaces": `-rw-r--r--
# Written from the provisioning file.
auto lo
iface lo inet loopback

auto wlan0
iface wlan0 inet static
	wpa-conf /etc/wpa_supplicant.conf
	address 192.168.1.20
	netmask 255.255.255.0
	gateway 192.168.1.1
iface wlan0 inet6 static
	address 2001:db8::20
	netmask 64
`,
		"etc/resolv.conf.provisioned":  "-rw-r--r--\nnameserver 192.168.1.1\nnameserver 2001:db8::1\n",
		"etc/dropbear/authorized_keys": "-rw-------\n" + key + "\n",
		"etc/kubernetes/join.json": `-rw-------
{"server":"https://10.0.0.1:6443","token":"abcdef.0123456789abcdef","caCertHashes":["sha256:7c2e69131a36ae2a042a339b33381c6d0d43887e2de83720eff5359e26aec866"]}
`,
	}
	wifi := got["etc/wpa_supplicant.conf"]
	delete(got, "etc/wpa_supplicant.conf")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if !strings.HasPrefix(wifi, "-rw-------\n") || !strings.Contains(wifi, "ssid=74776f2022776f726473\n") || !strings.Contains(wifi, "country=DE\n") || strings.Contains(wifi, "pass") {
		t.Errorf("wpa_supplicant.conf:\n%s", wifi)
	}
}

// The key of the example in IEEE 802.11i, annex H.4.
func TestWiFiKey(t *testing.T) {
	text, err := (&WiFi{SSID: "IEEE", Passphrase: "password"}).supplicant()
	if want := "psk=f42c6fc52df0ebef9ebb4b90b38a5f902e83fe1b135a70e23aed762e9710a12e"; err != nil || !strings.Contains(text, want) {
		t.Errorf("%v\n%s\nwant %s", err, text, want)
	}
}

func TestForms(t *testing.T) {
	for name, text := range map[string]string{
		"CRLF": "hostname: a\r\n", "byte order mark": "\ufeffhostname: a\n", "JSON": `{"hostname": "a"}`, "comments": "# x\nhostname: a # y\n", "no end of line": "hostname: a",
	} {
		if c, err := Parse([]byte(text)); err != nil || c.Hostname != "a" {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
}

func TestBadInput(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"empty", "", "is empty"},
		{"only spaces", " \r\n\n", "is empty"},
		{"too large", "hostname: a\n#" + strings.Repeat("x", 1<<20), "more than 65536 bytes"},
		{"no YAML", "{", "parse provisioning file"},
		{"binary", "\x00\x01\x02", "parse provisioning file"},
		{"truncated", full[:len(full)-80], "parse provisioning file"},
		{"unknown field", "hostnam: a", "unknown field"},
		{"twice", "hostname: a\nhostname: b", "already set"},
		{"wrong type", "hostname: [a]", "parse provisioning file"},
		{"host name", "hostname: Edge_01", "hostname: "},
		{"long host name", "hostname: " + strings.Repeat("a", 64), "hostname: "},
		{"time zone", "timeZone: ../../etc/shadow", "timeZone: "},
		{"interface", "network: {interface: \"eth0; reboot\"}", "network.interface: "},
		{"address", "network: {addresses: [192.168.1.20]}", "network.addresses[0]: "},
		{"gateway without address", "network: {gateway: 10.0.0.1}", "network.gateway: "},
		{"gateway elsewhere", "network: {addresses: [192.168.1.20/24], gateway: 10.0.0.1}", "network.gateway: "},
		{"name server", "network: {nameservers: [\"a\\nb\"]}", "network.nameservers[0]: "},
		{"SSID", "network: {wifi: {ssid: \"\", passphrase: \"12345678\"}}", "network.wifi.ssid: "},
		{"short passphrase", "network: {wifi: {ssid: a, passphrase: secret}}", "network.wifi.passphrase: "},
		{"country", "network: {wifi: {ssid: a, passphrase: secretsecret, country: de}}", "network.wifi.country: "},
		{"key with options", "ssh: {authorizedKeys: ['command=\"x\" " + key + "']}", "ssh.authorizedKeys[0]: "},
		{"two keys in one", "ssh: {authorizedKeys: [\"" + key + "\\n" + key + "\"]}", "ssh.authorizedKeys[0]: "},
		{"key of another type", "ssh: {authorizedKeys: [\"ssh-rsa " + strings.Fields(key)[1] + "\"]}", "ssh.authorizedKeys[0]: "},
		{"server", "join: {server: \"http://10.0.0.1\", token: abcdef.0123456789abcdef, caCertHashes: [x]}", "join.server: "},
		{"token", "join: {server: \"https://10.0.0.1\", token: secret, caCertHashes: [x]}", "join.token: "},
		{"hash", "join: {server: \"https://10.0.0.1\", token: abcdef.0123456789abcdef, caCertHashes: [x]}", "join.caCertHashes[0]: "},
		{"no hash", "join: {server: \"https://10.0.0.1\", token: abcdef.0123456789abcdef}", "join.caCertHashes: "},
		{"both", "kubeconfig: x\n" + full, "either join or kubeconfig"},
		{"kubeconfig without a cluster", "kubeconfig: 'users: [{user: {token: secret}}]'", "kubeconfig: it must have one cluster"},
		{"kubeconfig that is no YAML", "kubeconfig: '{secret'", "kubeconfig: it is no YAML"},
		{"kubeconfig without an authority", "kubeconfig: 'clusters: [{cluster: {server: \"https://10.0.0.1:6443\"}}]'", "kubeconfig: certificate-authority-data"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Parse([]byte(tc.text))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("Parse = %v, want %q", err, tc.want)
			}
			if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "0123456789abcdef") {
				t.Errorf("the error has a secret: %v", err)
			}
		})
	}
}

// lab is a root file system and a boot partition.
type lab struct {
	*testing.T
	root, boot *os.Root
	dir        string
}

const name = "tinylet.yaml"

func newLab(t *testing.T, text string) lab {
	t.Helper()
	dir := t.TempDir()
	l := lab{T: t, dir: dir}
	for folder, root := range map[string]**os.Root{"root": &l.root, "boot": &l.boot} {
		if err := os.MkdirAll(filepath.Join(dir, folder, "usr/share/zoneinfo/Europe/Berlin"), 0o755); err != nil {
			t.Fatal(err)
		}
		r, err := os.OpenRoot(filepath.Join(dir, folder))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close() })
		*root = r
	}
	if err := errors.Join(l.root.Mkdir("usr/sbin", 0o755), l.root.WriteFile(supplicantProgram, nil, 0o755)); err != nil {
		t.Fatal(err)
	}
	if text != "" {
		l.put(text)
	}
	return l
}

func (l lab) put(text string) {
	l.Helper()
	if err := l.boot.WriteFile(name, []byte(text), 0o644); err != nil {
		l.Fatal(err)
	}
}

func (l lab) apply(want Result) {
	l.Helper()
	if got, err := Apply(l.root, l.boot, name); err != nil || got != want {
		l.Fatalf("Apply = %v, %v, want %v", got, err, want)
	}
}

// noSecrets reports secrets in the file, and a file that got shorter.
func (l lab) noSecrets(size int) {
	l.Helper()
	text, err := l.boot.ReadFile(name)
	if err != nil || len(text) < size || strings.Contains(string(text), "0123456789") || strings.Contains(string(text), "pass") {
		l.Errorf("the file has %d bytes of %d, %v:\n%s", len(text), size, err, bytes.TrimRight(text, "\n"))
	}
}

func TestApply(t *testing.T) {
	l := newLab(t, "")
	l.apply(None)
	l.put(full)
	l.apply(Applied)
	l.noSecrets(len(full))
	l.apply(None)
	if got, err := l.root.ReadFile("etc/hostname"); err != nil || string(got) != "edge-01\n" {
		t.Errorf("host name %q, %v", got, err)
	}
	l.put("hostname: edge-02\n") // a second file is another one
	l.apply(Applied)
	if got, err := l.root.ReadFile("etc/hostname"); err != nil || string(got) != "edge-02\n" {
		t.Errorf("host name %q, %v", got, err)
	}
}

// Whoever puts the same file there again wants it to be applied.
func TestSameFileAgain(t *testing.T) {
	l := newLab(t, full)
	l.apply(Applied)
	if err := l.root.WriteFile("etc/hostname", []byte("renamed\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	l.put(full)
	l.apply(Applied)
	l.noSecrets(len(full))
	if got, _ := l.root.ReadFile("etc/hostname"); string(got) != "edge-01\n" {
		t.Errorf("host name %q", got)
	}
}

// A file is corrected that was applied, and that the next boot would have overwritten.
func TestCorrectedFile(t *testing.T) {
	l := newLab(t, full)
	l.apply(Applied)
	l.state(toWipe)
	l.put(strings.Replace(full, "edge-01", "edge-02", 1))
	l.apply(Applied)
	l.noSecrets(len(full))
	if got, _ := l.root.ReadFile("etc/hostname"); string(got) != "edge-02\n" {
		t.Errorf("host name %q", got)
	}
}

func TestImageWithoutWiFi(t *testing.T) {
	l := newLab(t, full)
	if err := l.root.Remove(supplicantProgram); err != nil {
		t.Fatal(err)
	}
	if got, err := Apply(l.root, l.boot, name); err == nil || got != None || !strings.Contains(err.Error(), "network.wifi: ") {
		t.Errorf("Apply = %v, %v", got, err)
	}
}

func TestNothingIsAppliedInPart(t *testing.T) {
	for _, text := range []string{strings.Replace(full, "edge-01", "Edge_01", 1), strings.Replace(full, "Europe/Berlin", "Europe/Nowhere", 1)} {
		l := newLab(t, text)
		if got, err := Apply(l.root, l.boot, name); err == nil || got != None {
			t.Fatalf("Apply = %v, %v", got, err)
		}
		if got, _ := l.boot.ReadFile(name); string(got) != text {
			t.Error("the file was changed")
		}
		if _, err := l.root.Stat("etc"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("/etc: %v", err)
		}
	}
}

// TestPowerCuts continues from each state that a power cut can leave.
func TestPowerCuts(t *testing.T) {
	for _, tc := range []struct {
		name string
		cut  func(l lab)
		want Result
	}{
		{"before the marker", func(l lab) {
			if err := l.root.Remove(marker); err != nil {
				l.Fatal(err)
			}
			l.put(full)
		}, Applied},
		{"before the file was overwritten", func(l lab) { l.state(toWipe); l.put(full) }, Wiped},
		{"while the file was overwritten", func(l lab) { l.state(toWipe); l.put(consumed + full[len(consumed):]) }, Wiped},
		{"before that was noted", func(l lab) { l.state(toWipe) }, Wiped},
		{"a torn temporary file is left", func(l lab) {
			if err := l.root.Remove(marker); err != nil {
				l.Fatal(err)
			}
			if err := l.root.WriteFile("etc/hostname.new", []byte("ed"), 0o600); err != nil {
				l.Fatal(err)
			}
			l.put(full)
		}, Applied},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLab(t, full)
			l.apply(Applied)
			tc.cut(l)
			l.apply(tc.want)
			l.noSecrets(len(full))
			l.apply(None)
			if got, err := l.root.ReadFile("etc/hostname"); err != nil || string(got) != "edge-01\n" {
				t.Errorf("host name %q, %v", got, err)
			}
		})
	}
}

// state sets the state of the marker.
func (l lab) state(state string) {
	l.Helper()
	m := readMarker(l.root)
	m.state = state
	if err := write(l.root, m.file()); err != nil {
		l.Fatal(err)
	}
}

func TestReadOnlyBootPartition(t *testing.T) {
	l := newLab(t, full)
	file := filepath.Join(l.dir, "boot", name)
	if err := os.Chmod(file, 0o444); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 { // root may write the file
		const other = 65534
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := os.Chown(filepath.Join(l.dir, "root"), other, other); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Setfsuid(other); err != nil { // of this thread
			t.Fatal(err)
		}
		defer func() { _ = syscall.Setfsuid(0) }() // it returns no error
	}
	if got, err := Apply(l.root, l.boot, name); got != Applied || !errors.Is(err, fs.ErrPermission) {
		t.Errorf("Apply = %v, %v", got, err)
	}
	if m := readMarker(l.root); m.state != toWipe {
		t.Errorf("the marker is %+v", m)
	}
}

// FuzzParse checks that no value of a valid file adds a line to a file that is written.
func FuzzParse(f *testing.F) {
	f.Add([]byte(full))
	f.Add([]byte(withKubeconfig))
	f.Add([]byte(`{"network": {"interface": "eth1", "nameservers": ["10.0.0.1"]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := Parse(text)
		if err != nil {
			return
		}
		files, err := c.Files()
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			lines := bytes.Count(file.Data, []byte("\n"))
			switch file.Path {
			case hostsFile:
				if lines != 3 {
					t.Errorf("%s has %d lines: %q", file.Path, lines, file.Data)
				}
			case hostnameFile, zoneFile, JoinFile:
				if lines != 1 {
					t.Errorf("%s has %d lines: %q", file.Path, lines, file.Data)
				}
			case keysFile:
				if lines != len(c.SSH.AuthorizedKeys) {
					t.Errorf("%s has %d lines: %q", file.Path, lines, file.Data)
				}
			case resolverFile:
				if lines != len(c.Network.Nameservers) {
					t.Errorf("%s has %d lines: %q", file.Path, lines, file.Data)
				}
			}
		}
	})
}

func TestProblems(t *testing.T) {
	dir := t.TempDir()
	if got := Problems(dir); got != nil {
		t.Errorf("without a directory: %q", got)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for _, file := range []File{
		{"run/tinylet/problems/data", 0o600, []byte("the partition data\ncannot be mounted\n")},
		{"run/tinylet/problems/empty", 0o600, nil},
		{"run/tinylet/problems/large", 0o600, bytes.Repeat([]byte("x"), maxProblem+1)},
	} {
		if err := write(root, file); err != nil {
			t.Fatal(err)
		}
	}
	if err := root.Symlink("/etc/passwd", problemDir+"/link"); err != nil {
		t.Fatal(err)
	}
	if err := Record(root, errors.New("hostname: wrong\ntimeZone: wrong")); err != nil {
		t.Fatal(err)
	}
	want := []string{"the partition data", "cannot be mounted", strings.Repeat("x", maxProblem), "correct the provisioning file and reboot: hostname: wrong; timeZone: wrong"}
	if got := Problems(dir); !slices.Equal(got, want) {
		t.Errorf("problems %.200q, want %.200q", got, want)
	}
	if err := Record(root, nil); err != nil {
		t.Fatal(err)
	}
	if got := Problems(dir); len(got) != 3 {
		t.Errorf("after a corrected file: %.200q", got)
	}
}
