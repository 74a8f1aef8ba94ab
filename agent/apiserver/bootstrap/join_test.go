package bootstrap

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// certificate returns a certificate signed by by, or self-signed if by is nil.
func certificate(t *testing.T, leaf, by *x509.Certificate, key *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	leaf.SerialNumber = big.NewInt(time.Now().UnixNano())
	leaf.NotBefore = time.Now().Add(-time.Hour)
	if leaf.NotAfter.IsZero() {
		leaf.NotAfter = time.Now().Add(time.Hour)
	}
	if by == nil {
		leaf.IsCA, leaf.BasicConstraintsValid, leaf.KeyUsage = true, true, x509.KeyUsageCertSign
		by, key = leaf, own
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, by, &own.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, own
}

func pemOf(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

// lab is an API server and the directory of a node.
type lab struct {
	ca     *x509.Certificate
	caKey  *ecdsa.PrivateKey
	server *httptest.Server
	dir    string
	asked  int
	// info answers cluster-info at the nth request; nil is not found.
	info func(n int) map[string]string
	// leaf is the server's certificate, changed before it is signed.
	options Options
}

func newLab(t *testing.T, change func(l *lab, leaf *x509.Certificate)) *lab {
	t.Helper()
	l := &lab{dir: t.TempDir()}
	l.ca, l.caKey = certificate(t, &x509.Certificate{Subject: pkix.Name{CommonName: "kubernetes"}}, nil, nil)
	leaf := &x509.Certificate{
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	l.info = func(int) map[string]string { return l.good() }
	if change != nil {
		change(l, leaf)
	}
	by, byKey := l.ca, l.caKey
	if leaf.Issuer.CommonName == "another" {
		by, byKey = certificate(t, &x509.Certificate{Subject: pkix.Name{CommonName: "another"}}, nil, nil)
	}
	cert, key := certificate(t, leaf, by, byKey)
	l.server = httptest.NewUnstartedServer(http.HandlerFunc(l.handle))
	l.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	l.server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}}}
	l.server.StartTLS()
	t.Cleanup(l.server.Close)
	l.options = Options{
		Server: l.server.URL, Token: goodToken, CAHashes: []string{pinOf(l.ca).String()},
		Kubeconfig: filepath.Join(l.dir, "kubelet.conf"), BootstrapKubeconfig: filepath.Join(l.dir, "bootstrap-kubelet.conf"),
		CAFile: filepath.Join(l.dir, "pki/ca.crt"),
	}
	return l
}

func (l *lab) kubeconfig() string {
	return "apiVersion: v1\nkind: Config\nclusters:\n- name: \"\"\n  cluster:\n    server: https://advertised:6443\n" +
		"    certificate-authority-data: " + base64.StdEncoding.EncodeToString(pemOf(l.ca)) + "\n"
}

func (l *lab) good() map[string]string {
	return map[string]string{
		"kubeconfig":            l.kubeconfig(),
		"jws-kubeconfig-abcdef": sign(goodHeader, "0123456789abcdef", l.kubeconfig()),
	}
}

func (l *lab) handle(w http.ResponseWriter, r *http.Request) {
	l.asked++
	w.Header().Set("Content-Type", "application/json")
	var object any
	if r.Header.Get("Authorization") != "" {
		w.WriteHeader(http.StatusTeapot)
		return
	}
	if data := l.info(l.asked); data != nil && r.URL.Path == "/api/v1/namespaces/kube-public/configmaps/cluster-info" {
		object = v1.ConfigMap{TypeMeta: metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"}, Data: data}
	} else {
		w.WriteHeader(http.StatusNotFound)
		object = metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: "NotFound", Code: 404, Message: "not found"}
	}
	_ = json.NewEncoder(w).Encode(object)
}

func TestJoin(t *testing.T) {
	l := newLab(t, nil)
	result, err := Join(t.Context(), l.options)
	if err != nil {
		t.Fatal(err)
	}
	if want := (Result{Server: l.server.URL, Advertised: "https://advertised:6443", CAHash: pinOf(l.ca).String()}); result != want {
		t.Errorf("%+v, want %+v", result, want)
	}
	k, err := identity.Load(l.options.BootstrapKubeconfig)
	if err != nil || k.Server != l.server.URL || k.Token != goodToken || string(k.CA) != string(pemOf(l.ca)) || k.Insecure {
		t.Errorf("bootstrap kubeconfig %+v, %v", k, err)
	}
	if at, err := os.Stat(l.options.BootstrapKubeconfig); err != nil || at.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", at, err)
	}
	if data, err := os.ReadFile(l.options.CAFile); err != nil || string(data) != string(pemOf(l.ca)) {
		t.Errorf("CA %q, %v", data, err)
	}
	if l.asked != 2 {
		t.Errorf("%d requests", l.asked)
	}
}

func TestJoinRefuses(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(l *lab, leaf *x509.Certificate)
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
		{name: "no cluster-info", change: func(l *lab, _ *x509.Certificate) { l.info = func(int) map[string]string { return nil } }, want: "is not an API server"},
		{name: "an empty cluster-info", change: func(l *lab, _ *x509.Certificate) { l.info = func(int) map[string]string { return map[string]string{} } }, want: "not set up for joining"},
		{name: "a field in another case", change: func(l *lab, _ *x509.Certificate) {
			l.info = func(int) map[string]string {
				kubeconfig := strings.Replace(l.kubeconfig(), "clusters:", "Clusters:", 1)
				return map[string]string{"kubeconfig": kubeconfig, "jws-kubeconfig-abcdef": sign(goodHeader, "0123456789abcdef", kubeconfig)}
			}
		}, want: "found 0"},
		{name: "an unsigned change", change: func(l *lab, _ *x509.Certificate) {
			l.info = func(int) map[string]string {
				data := l.good()
				data["kubeconfig"] = strings.Replace(data["kubeconfig"], "advertised", "evil", 1)
				return data
			}
		}, want: "the secret of the token"},
		{name: "a server of another CA", change: func(_ *lab, leaf *x509.Certificate) { leaf.Issuer.CommonName = "another" }, want: "not signed by the cluster's CA"},
		{name: "another name", change: func(_ *lab, leaf *x509.Certificate) { leaf.IPAddresses = []net.IP{net.IPv4(10, 0, 0, 1)} }, want: "is for another name"},
		{name: "a server whose time is over", change: func(_ *lab, leaf *x509.Certificate) { leaf.NotAfter = time.Now().Add(-time.Minute) }, want: "clock right"},
		{name: "another the second time", change: func(l *lab, _ *x509.Certificate) {
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
	if result, err := Join(t.Context(), l.options); err != nil || result.CAHash != pinOf(l.ca).String() {
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

// TestNodeOfACluster joins with a kubeconfig that is there already.
func TestNodeOfACluster(t *testing.T) {
	other, _ := certificate(t, &x509.Certificate{Subject: pkix.Name{CommonName: "kubernetes"}}, nil, nil)
	for _, row := range []struct {
		name    string
		ca      func(l *lab) *x509.Certificate
		life    time.Duration
		force   bool
		already bool
		want    string // of the error
		removed bool
	}{
		{name: "of this one", ca: func(l *lab) *x509.Certificate { return l.ca }, life: time.Hour, already: true},
		{name: "of this one, expired", ca: func(l *lab) *x509.Certificate { return l.ca }, life: -time.Minute},
		{name: "of another", ca: func(*lab) *x509.Certificate { return other }, life: time.Hour, want: "belongs to another cluster"},
		{name: "of another, by force", ca: func(*lab) *x509.Certificate { return other }, life: time.Hour, force: true, removed: true},
	} {
		t.Run(row.name, func(t *testing.T) {
			l := newLab(t, nil)
			cert, key := certificate(t, &x509.Certificate{Subject: pkix.Name{CommonName: "system:node:a"}, NotAfter: time.Now().Add(row.life)}, l.ca, l.caKey)
			der, err := x509.MarshalECPrivateKey(key)
			if err != nil {
				t.Fatal(err)
			}
			k := &identity.Kubeconfig{
				Server: "https://x:6443", CA: pemOf(row.ca(l)), Cert: pemOf(cert),
				Key: pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}),
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
