package bootstrap

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tinylet/tinylet/agent/apiserver/apiservertest"
	"github.com/tinylet/tinylet/agent/apiserver/identity"
)

const goodToken = "abcdef.0123456789abcdef"

// sign returns a detached JWS like the control plane's bootstrapsigner.
func sign(header, secret, content string) string {
	head := base64.RawURLEncoding.EncodeToString([]byte(header))
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(head + "." + base64.RawURLEncoding.EncodeToString([]byte(content))))
	return head + ".." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

const goodHeader = `{"alg":"HS256","kid":"abcdef"}`

// lab is an API server and the directory of a node.
type lab struct {
	ca     *apiservertest.Authority
	server *httptest.Server
	dir    string
	asked  int
	// info answers cluster-info at the nth request; nil is not found.
	info func(n int) map[string]string
	// listed is the CA in cluster-info.
	listed []byte
	// by signs the server's certificate, and leaf changes it before that.
	by      *apiservertest.Authority
	leaf    func(*x509.Certificate)
	options Options
}

func newLab(t *testing.T, change func(l *lab)) *lab {
	t.Helper()
	l := &lab{dir: t.TempDir(), ca: apiservertest.NewAuthority(t, "kubernetes"), leaf: func(*x509.Certificate) {}}
	l.by, l.listed = l.ca, l.ca.PEM()
	l.info = func(int) map[string]string { return l.good() }
	if change != nil {
		change(l)
	}
	api := apiservertest.New()
	api.SetFaults(apiservertest.Faults{Before: func(context.Context, apiservertest.Call) error {
		l.asked++
		api.Restore(1)
		if data := l.info(l.asked); data != nil {
			api.Put(&v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-public", Name: "cluster-info"}, Data: data})
		}
		return nil
	}})
	l.server = api.Serve(t, l.by.Client("kube-apiserver", nil, func(leaf *x509.Certificate) {
		leaf.IPAddresses, leaf.ExtKeyUsage = []net.IP{net.IPv4(127, 0, 0, 1)}, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		l.leaf(leaf)
	}), nil)
	l.options = Options{
		Server: l.server.URL, Token: goodToken, CAHashes: []string{pinOf(l.ca.Certificate()).String()},
		Kubeconfig: filepath.Join(l.dir, "kubelet.conf"), BootstrapKubeconfig: filepath.Join(l.dir, "bootstrap-kubelet.conf"),
		CAFile: filepath.Join(l.dir, "pki/ca.crt"),
	}
	return l
}

func (l *lab) kubeconfig() string {
	return "apiVersion: v1\nkind: Config\nclusters:\n- name: \"\"\n  cluster:\n    server: https://advertised:6443\n" +
		"    certificate-authority-data: " + base64.StdEncoding.EncodeToString(l.listed) + "\n"
}

func (l *lab) good() map[string]string {
	return map[string]string{
		"kubeconfig":            l.kubeconfig(),
		"jws-kubeconfig-abcdef": sign(goodHeader, "0123456789abcdef", l.kubeconfig()),
	}
}

func TestJoin(t *testing.T) {
	l := newLab(t, nil)
	result, err := Join(t.Context(), l.options)
	if err != nil {
		t.Fatal(err)
	}
	if want := (Result{Server: l.server.URL, Advertised: "https://advertised:6443", CAHash: pinOf(l.ca.Certificate()).String()}); result != want {
		t.Errorf("%+v, want %+v", result, want)
	}
	k, err := identity.Load(l.options.BootstrapKubeconfig)
	if err != nil || k.Server != l.server.URL || k.Token != goodToken || string(k.CA) != string(l.ca.PEM()) || k.Insecure {
		t.Errorf("bootstrap kubeconfig %+v, %v", k, err)
	}
	if at, err := os.Stat(l.options.BootstrapKubeconfig); err != nil || at.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", at, err)
	}
	if data, err := os.ReadFile(l.options.CAFile); err != nil || string(data) != string(l.ca.PEM()) {
		t.Errorf("CA %q, %v", data, err)
	}
	if l.asked != 2 {
		t.Errorf("%d requests", l.asked)
	}
}

func TestJoinRefuses(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(l *lab)
		with   func(o *Options)
		want   string
	}{
		{name: "a hash of another CA", with: func(o *Options) { o.CAHashes = []string{"sha256:" + strings.Repeat("ab", 32)} }, want: "--ca-cert-hash"},
		{name: "a hash of no form", with: func(o *Options) { o.CAHashes = []string{"sha256:ab"} }, want: "64 hexadecimal digits"},
		{name: "no hash", with: func(o *Options) { o.CAHashes = nil }, want: "--unsafe-skip-ca-verification"},
		{name: "both", with: func(o *Options) { o.UnsafeSkipCAVerification = true }, want: "mutually exclusive"},
		{name: "a token of no form", with: func(o *Options) { o.Token = "abcdef.short" }, want: "not of the form"},
		{name: "an unknown token", with: func(o *Options) { o.Token = "aaaaaa.0123456789abcdef" }, want: "token aaaaaa.<secret> is unknown"},
		{name: "a wrong secret", with: func(o *Options) { o.Token = "abcdef.aaaaaaaaaaaaaaaa" }, want: "the secret of the token abcdef.<secret> is not"},
		{name: "nobody there", with: func(o *Options) { o.Server = "https://127.0.0.1:1" }, want: "cannot be reached"},
		{name: "no URL", with: func(o *Options) { o.Server = "10.0.0.1" }, want: "https://10.0.0.1:6443"},
		{name: "no cluster-info", change: func(l *lab) { l.info = func(int) map[string]string { return nil } }, want: "is not an API server"},
		{name: "an empty cluster-info", change: func(l *lab) { l.info = func(int) map[string]string { return map[string]string{} } }, want: "not set up for joining"},
		{name: "a field in another case", change: func(l *lab) {
			l.info = func(int) map[string]string {
				kubeconfig := strings.Replace(l.kubeconfig(), "clusters:", "Clusters:", 1)
				return map[string]string{"kubeconfig": kubeconfig, "jws-kubeconfig-abcdef": sign(goodHeader, "0123456789abcdef", kubeconfig)}
			}
		}, want: "found 0"},
		{name: "an unsigned change", change: func(l *lab) {
			l.info = func(int) map[string]string {
				data := l.good()
				data["kubeconfig"] = strings.Replace(data["kubeconfig"], "advertised", "evil", 1)
				return data
			}
		}, want: "the secret of the token"},
		{name: "a server of another CA", change: func(l *lab) { l.by = apiservertest.NewAuthority(t, "another") }, want: "not signed by the cluster's CA"},
		{name: "another name", change: func(l *lab) {
			l.leaf = func(leaf *x509.Certificate) { leaf.IPAddresses = []net.IP{net.IPv4(10, 0, 0, 1)} }
		}, want: "is for another name"},
		{name: "a server whose time is over", change: func(l *lab) { l.leaf = func(leaf *x509.Certificate) { leaf.NotAfter = time.Now().Add(-time.Minute) } }, want: "clock right"},
		{name: "another the second time", change: func(l *lab) {
			l.info = func(n int) map[string]string {
				kubeconfig := l.kubeconfig() + strings.Repeat("#", n)
				return map[string]string{"kubeconfig": kubeconfig, "jws-kubeconfig-abcdef": sign(goodHeader, "0123456789abcdef", kubeconfig)}
			}
		}, want: "differed on the second read"},
	} {
		t.Run(row.name, func(t *testing.T) {
			l := newLab(t, row.change)
			if row.with != nil {
				row.with(&l.options)
			}
			_, err := Join(t.Context(), l.options)
			if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("error %v, want %q", err, row.want)
			}
			if err != nil && (strings.Contains(err.Error(), "0123456789abcdef") || strings.Contains(err.Error(), "aaaaaaaaaaaaaaaa")) {
				t.Errorf("the error tells the secret: %v", err)
			}
			if left, _ := filepath.Glob(filepath.Join(l.dir, "*")); len(left) != 0 {
				t.Errorf("it left %q", left)
			}
		})
	}
}

func TestJoinWithoutHash(t *testing.T) {
	l := newLab(t, nil)
	l.options.CAHashes, l.options.UnsafeSkipCAVerification = nil, true
	if result, err := Join(t.Context(), l.options); err != nil || result.CAHash != pinOf(l.ca.Certificate()).String() {
		t.Errorf("%+v, %v", result, err)
	}
}

func TestJoinEndsWithItsContext(t *testing.T) {
	l := newLab(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Join(ctx, l.options); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestUnreadableKubeconfig(t *testing.T) {
	l := newLab(t, nil)
	if err := os.Mkdir(l.options.Kubeconfig, 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := Join(t.Context(), l.options)
	if err == nil || strings.Count(err.Error(), "read kubeconfig") != 1 || strings.Count(err.Error(), "kubeconfig: read ") != 1 || !strings.Contains(err.Error(), "--force") {
		t.Errorf("error %v", err)
	}
}

// TestNodeOfACluster joins with a kubeconfig that is there already.
func TestNodeOfACluster(t *testing.T) {
	other := apiservertest.NewAuthority(t, "kubernetes")
	ours := func(l *lab) []byte { return l.ca.PEM() }
	theirs := func(*lab) []byte { return other.PEM() }
	both := func(l *lab) []byte { return slices.Concat(other.PEM(), l.ca.PEM()) }
	for _, row := range []struct {
		name    string
		ca      func(l *lab) []byte // of the kubeconfig
		info    func(l *lab) []byte // the CA in cluster-info, ours if nil
		life    time.Duration
		force   bool
		already bool
		want    string // of the error
		removed bool
	}{
		{name: "of this one", ca: ours, life: time.Hour, already: true},
		{name: "of this one, expired", ca: ours, life: -time.Minute},
		{name: "of this one, with an older CA too", ca: both, life: time.Hour, already: true},
		{name: "of this one, before its CA changed", ca: theirs, info: both, life: time.Hour, already: true},
		{name: "of this one, after its CA changed", ca: ours, info: both, life: time.Hour, already: true},
		{name: "of another", ca: theirs, life: time.Hour, want: "belongs to another cluster"},
		{name: "of another, by force", ca: theirs, life: time.Hour, force: true, removed: true},
		{name: "of the system's CAs", ca: func(*lab) []byte { return nil }, life: time.Hour, want: "without a CA"},
	} {
		t.Run(row.name, func(t *testing.T) {
			l := newLab(t, nil)
			if row.info != nil {
				l.listed = row.info(l)
			}
			pair := l.ca.Client("system:node:a", nil, func(leaf *x509.Certificate) { leaf.NotAfter = time.Now().Add(row.life) })
			der, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
			if err != nil {
				t.Fatal(err)
			}
			k := &identity.Kubeconfig{
				Server: "https://x:6443", CA: row.ca(l),
				Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Leaf.Raw}),
				Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
			}
			if err := k.Write(l.options.Kubeconfig); err != nil {
				t.Fatal(err)
			}
			l.options.Force = row.force
			result, err := Join(t.Context(), l.options)
			if (row.want == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), row.want)) || result.AlreadyJoined != row.already {
				t.Errorf("%+v, %v", result, err)
			}
			_, err = os.Stat(l.options.BootstrapKubeconfig)
			if wrote := err == nil; wrote != (row.want == "" && !row.already) {
				t.Errorf("bootstrap kubeconfig: %v", err)
			}
			if _, err = os.Stat(l.options.Kubeconfig); errors.Is(err, os.ErrNotExist) != row.removed {
				t.Errorf("kubeconfig: %v", err)
			}
		})
	}
}
