package identity

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/tinylet/tinylet/agent/apiserver/apiservertest"
	"github.com/tinylet/tinylet/agent/store/atomicfile"
)

// client waits for the identity's client.
func client(t *testing.T, id *Identity) interface {
	Raw(ctx context.Context, path string) ([]byte, error)
} {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	c, err := id.Client(ctx)
	if err != nil {
		t.Fatalf("no client: %v (%s)", err, id.Problem())
	}
	return c
}

// sees returns whom the server authenticates a client as.
func (b *board) sees(c interface {
	Raw(ctx context.Context, path string) ([]byte, error)
}) string {
	b.t.Helper()
	if _, err := c.Raw(b.t.Context(), "/version"); err != nil {
		return err.Error()
	}
	calls := b.cluster.Calls()
	return calls[len(calls)-1].User
}

// isNode checks that the server authenticates the client as the node.
func (b *board) isNode(id *Identity) {
	b.t.Helper()
	if user := b.sees(client(b.t, id)); user != "system:node:a" {
		b.t.Errorf("the server sees %s", user)
	}
}

func TestBootstrap(t *testing.T) {
	c := newCluster(t)
	b := newBoard(t, c, false)
	b.kubeconfig("bootstrap-kubelet.conf", withToken)
	id, _ := b.start()
	b.isNode(id)
	soon(t, "no problem is left", func() bool { return id.Problem() == "" })
	if names := c.names(); len(names) != 1 || !strings.HasPrefix(names[0], "node-csr-") || len(names[0]) != len("node-csr-")+43 {
		t.Errorf("requests %q", names)
	}
	r := apiservertest.Stored[*certificatesv1.CertificateSigningRequest](c.Server, "", c.names()[0])
	if r.Spec.SignerName != "kubernetes.io/kube-apiserver-client-kubelet" || fmt.Sprint(r.Spec.Usages) != "[digital signature client auth]" || r.Spec.ExpirationSeconds != nil {
		t.Errorf("request %+v", r.Spec)
	}
	current := b.path("pki/kubelet-client-current.pem")
	target, err := os.Readlink(current)
	if err != nil || !filepath.IsAbs(target) || !strings.HasPrefix(filepath.Base(target), "kubelet-client-20") {
		t.Errorf("link to %q, %v", target, err)
	}
	for _, path := range []string{target, b.path("kubelet.conf")} {
		if at, err := os.Stat(path); err != nil || at.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", path, at.Mode(), err)
		}
	}
	k, err := Load(b.path("kubelet.conf"))
	if err != nil || k.CertFile != current || k.KeyFile != current || k.Server != b.server || string(k.CA) != string(c.ca.PEM()) || k.Token != "" || k.TokenFile != "" {
		t.Errorf("kubeconfig %+v, %v", k, err)
	}
	if _, err := os.Stat(b.path("pki/kubelet-client.key.tmp")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the key is left: %v", err)
	}
	if first, _ := id.Client(t.Context()); first != client(t, id) {
		t.Error("the client is another one")
	}
}

func TestBootstrapFileComesLater(t *testing.T) {
	c := newCluster(t)
	b := newBoard(t, c, false)
	b.adjust = func(c *Config) { c.BootstrapKubeconfig = b.path("not/yet/bootstrap.conf") }
	id, _ := b.start()
	soon(t, "it says what to do", func() bool { return strings.Contains(id.Problem(), "kubeadm token create") })
	b.kubeconfig("not/yet/bootstrap.conf", withToken)
	b.isNode(id)
}

// TestCAFileComesLater has a bootstrap kubeconfig whose CA file is written after it.
func TestCAFileComesLater(t *testing.T) {
	c := newCluster(t)
	b := newBoard(t, c, false)
	b.write("bootstrap-kubelet.conf", []byte(document("server: '"+b.server+"', certificate-authority: pki/ca.crt", "token: "+bootstrapToken)))
	id, _ := b.start()
	soon(t, "it says what is missing", func() bool { return strings.Contains(id.Problem(), "pki/ca.crt") })
	b.write("pki/ca.crt", c.ca.PEM())
	b.isNode(id)
}

// TestWatchedFiles checks that all files that the kubeconfigs refer to are watched, also
// while they do not exist.
func TestWatchedFiles(t *testing.T) {
	b := newBoard(t, newCluster(t), true)
	id, err := New(Config{
		Kubeconfig: b.path("a.conf"), BootstrapKubeconfig: b.path("b.conf"), EnrolKubeconfig: b.path("c.conf"), PKI: b.path("pki"), NodeName: "a",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{b.path("pki/kubelet-client-current.pem")}
	for _, name := range []string{"a", "b", "c"} {
		b.write(name+".conf", []byte(strings.ReplaceAll(document(aServer+", certificate-authority: NAME.ca",
			"client-certificate: NAME.pem, client-key: NAME.key, tokenFile: NAME.token"), "NAME", name)))
		for _, end := range []string{".conf", ".ca", ".pem", ".key", ".token"} {
			want = append(want, b.path(name+end))
		}
	}
	id.readFiles()
	got := id.paths()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("watched %q, want %q", got, want)
	}
}

func TestRefused(t *testing.T) {
	c := newCluster(t)
	c.policy = deny
	b := newBoard(t, c, false)
	b.kubeconfig("bootstrap-kubelet.conf", withToken)
	id, _ := b.start()
	soon(t, "the refusal is told", func() bool { return strings.Contains(id.Problem(), "not you") })
	c.mu.Lock()
	c.policy = nil
	c.mu.Unlock()
	// A new token comes by a changed file, and nobody waits.
	b.kubeconfig("bootstrap-kubelet.conf", withToken)
	b.isNode(id)
	if names := c.names(); len(names) != 2 || names[0] == names[1] {
		t.Errorf("requests %q", names)
	}
	if n := strings.Count(b.log.String(), "CertificateRefused"); n != 1 {
		t.Errorf("told %d times:\n%s", n, b.log.String())
	}
}

func TestLateApproval(t *testing.T) {
	c := newCluster(t)
	c.policy = ignore
	b := newBoard(t, c, false)
	b.kubeconfig("bootstrap-kubelet.conf", withToken)
	_, stop := b.start()
	soon(t, "a request", func() bool { return len(c.names()) == 1 })
	stop()
	id, _ := b.start()
	soon(t, "the request is watched", func() bool { return c.Watches() == 1 })
	server := netip.MustParseAddr("127.0.0.1")
	soon(t, "its server has an address", func() bool { return slices.Contains(id.ServerAddresses(), server) })
	c.change(c.names()[0], c.approve)
	b.isNode(id)
	id.mu.Lock()
	enrolling := id.enrolling
	id.mu.Unlock()
	if got := id.ServerAddresses(); !slices.Contains(got, server) || enrolling != nil {
		t.Errorf("addresses of the API server %v, the client of the first request is kept: %t", got, enrolling != nil)
	}
	if n := len(c.names()); n != 1 {
		t.Errorf("%d requests", n)
	}
}

func TestWrongToken(t *testing.T) {
	b := newBoard(t, newCluster(t), false)
	b.kubeconfig("bootstrap-kubelet.conf", func(k *Kubeconfig) { k.Token = "abcdef.aaaaaaaaaaaaaaaa" })
	id, _ := b.start()
	soon(t, "it says that the token is wrong", func() bool { return strings.Contains(id.Problem(), "may have expired") })
	if strings.Contains(b.log.String(), "aaaaaaaaaaaaaaaa") {
		t.Error("the token is in the log")
	}
}

// stepsOf calls dies with the name of each file change and each request of a
// bootstrap, before and after the server processes it. A true result kills the
// agent there.
func stepsOf(b *board, dies func(step string) bool) {
	// Nothing else makes files.
	b.adjust = func(c *Config) { c.ServingCert, c.ServingKey = "unused", "unused" }
	dated := regexp.MustCompile(`-20[0-9-]+`)
	b.before = func(step, path string) error {
		if dies(step + " " + dated.ReplaceAllString(filepath.Base(path), "-dated")) {
			return errors.New("killed")
		}
		return nil
	}
	b.cluster.step = func(step string) error {
		if dies(step) {
			return errors.New("killed")
		}
		return nil
	}
}

// TestKilledAnywhere kills the agent at each step of its bootstrap.
func TestKilledAnywhere(t *testing.T) {
	var mu sync.Mutex
	var all []string
	b := newBoard(t, newCluster(t), false)
	b.kubeconfig("bootstrap-kubelet.conf", withToken)
	stepsOf(b, func(step string) bool {
		mu.Lock()
		defer mu.Unlock()
		if !slices.Contains(all, step) {
			all = append(all, step)
		}
		return false
	})
	id, stop := b.start()
	client(t, id)
	stop()
	mu.Lock()
	defer mu.Unlock()
	if len(all) < 20 || !slices.Contains(all, "answer create") || !slices.Contains(all, "rename kubelet.conf") {
		t.Fatalf("steps %q", all)
	}
	for _, step := range all {
		t.Run(step, func(t *testing.T) { killedAt(t, step) })
	}
}

func killedAt(t *testing.T, step string) {
	t.Helper()
	b := newBoard(t, newCluster(t), false)
	b.kubeconfig("bootstrap-kubelet.conf", withToken)
	var dead atomic.Bool
	died := make(chan struct{})
	stepsOf(b, func(at string) bool {
		if at == step && dead.CompareAndSwap(false, true) {
			close(died)
		}
		return dead.Load()
	})
	_, stop := b.start()
	select {
	case <-died:
	case <-time.After(10 * time.Second):
		t.Fatal("it does not die")
	}
	stop()
	b.before = nil
	dead.Store(false)
	b.cluster.step = nil
	// kubeadm deletes the file only when the kubeconfig is whole.
	if k, err := Load(b.path("kubelet.conf")); err == nil {
		if _, err := k.Certificate(); err != nil {
			t.Errorf("the kubeconfig came before its certificate: %v", err)
		}
	}
	id, _ := b.start()
	b.isNode(id)
	if names := b.cluster.names(); len(names) != 1 {
		t.Errorf("requests %q", names)
	}
	soon(t, "nothing is left", func() bool {
		left, err := filepath.Glob(b.path("pki/*.tmp*"))
		return err == nil && len(left) == 0
	})
}

// TestForeignFiles starts with files of others or from before a power cut.
func TestForeignFiles(t *testing.T) {
	now := time.Now()
	for _, row := range []struct {
		name    string
		prepare func(b *board)
		asked   int // requests with the bootstrap token
	}{
		{"a stock kubelet's", func(b *board) { b.current(now.Add(-time.Hour), now.Add(time.Hour*9)) }, 0},
		{"an expired certificate", func(b *board) { b.current(now.Add(-2*time.Hour), now.Add(-time.Hour)) }, 1},
		{"a garbage certificate", func(b *board) {
			b.current(now.Add(-time.Hour), now.Add(9*time.Hour))
			b.write("pki/kubelet-client-old.pem", []byte("\x00\xffgarbage"))
		}, 1},
		{"half a certificate", func(b *board) {
			b.current(now.Add(-time.Hour), now.Add(9*time.Hour))
			data, _ := os.ReadFile(b.path("pki/kubelet-client-old.pem"))
			b.write("pki/kubelet-client-old.pem", data[:len(data)-60])
		}, 1},
		{"a link to nothing", func(b *board) {
			b.current(now.Add(-time.Hour), now.Add(9*time.Hour))
			_ = os.Remove(b.path("pki/kubelet-client-old.pem"))
		}, 1},
		{"a link that was not moved", func(b *board) {
			b.current(now.Add(-time.Hour), now.Add(9*time.Hour))
			_ = os.Rename(b.path("pki/kubelet-client-current.pem"), b.path("pki/kubelet-client-updated.pem"))
		}, 0},
		{"half a kubeconfig", func(b *board) {
			b.current(now.Add(-time.Hour), now.Add(9*time.Hour))
			b.write("kubelet.conf", []byte("apiVersion: v1\nkind: Config\nclusters:\n- cluster:\n    serv"))
		}, 1},
		{"a garbage key", func(b *board) { b.write("pki/kubelet-client.key.tmp", []byte("garbage")) }, 1},
		{"an embedded certificate", func(b *board) {
			data := b.cluster.nodePair("a", now.Add(-time.Hour), now.Add(9*time.Hour))
			b.kubeconfig("kubelet.conf", func(k *Kubeconfig) { k.Cert, k.Key = data, data })
		}, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBoard(t, newCluster(t), false)
			b.kubeconfig("bootstrap-kubelet.conf", withToken)
			row.prepare(b)
			id, _ := b.start()
			b.isNode(id)
			b.cluster.mu.Lock()
			defer b.cluster.mu.Unlock()
			asked := 0
			for _, user := range b.cluster.users {
				if user == "system:bootstrap:abcdef" {
					asked++
				}
			}
			if asked != row.asked {
				t.Errorf("requests by %q", b.cluster.users)
			}
		})
	}
}

// TestCertificateIsReplaced replaces the certificate from outside, as kubeadm does,
// while a connection with the old one is open.
func TestCertificateIsReplaced(t *testing.T) {
	b := newBoard(t, newCluster(t), false)
	b.current(time.Now().Add(-time.Hour), time.Now().Add(9*time.Hour))
	id, _ := b.start()
	b.isNode(id)
	if err := atomicfile.Write(b.path("pki/kubelet-client-current.pem"), b.cluster.nodePair("b", time.Now(), time.Now().Add(time.Hour)), 0o600); err != nil {
		t.Fatal(err)
	}
	c := client(t, id)
	soon(t, "the server sees the new one", func() bool {
		return b.sees(c) == "system:node:b"
	})
}

// TestSomebodyElsesRequest starts with another node's request of the same name.
func TestSomebodyElsesRequest(t *testing.T) {
	c := newCluster(t)
	b := newBoard(t, c, true)
	key, err := newKey()
	if err != nil {
		t.Fatal(err)
	}
	data, err := encodeKey(key)
	if err != nil {
		t.Fatal(err)
	}
	b.write("pki/kubelet-client.key.tmp", data)
	mine, other := clientTemplate("a"), clientTemplate("b")
	request, err := other.request(key)
	if err != nil {
		t.Fatal(err)
	}
	if request.Name, err = mine.name(key); err != nil {
		t.Fatal(err)
	}
	c.Put(request)
	s := &store{dir: b.path("pki"), prefix: "kubelet-client"}
	i := &issuer{store: s, now: time.Now}
	_, err = i.obtain(t.Context(), c.direct("token"), mine, true, nil)
	var refused *csrRefusedError
	if !errors.As(err, &refused) {
		t.Fatalf("error %v", err)
	}
	if _, err := i.obtain(t.Context(), c.direct("token"), mine, true, nil); err != nil {
		t.Errorf("with another key: %v", err)
	}
}

func TestBrokenKubeconfig(t *testing.T) {
	c := newCluster(t)
	b := newBoard(t, c, false)
	b.current(time.Now(), time.Now().Add(day))
	good, err := os.ReadFile(b.path("kubelet.conf"))
	if err != nil {
		t.Fatal(err)
	}
	b.write("kubelet.conf", good[:len(good)/2])
	id, _ := b.start()
	soon(t, "it says what to do", func() bool { return strings.Contains(id.Problem(), "repair that file, or create a token") })
	b.write("kubelet.conf", good)
	b.isNode(id)
	soon(t, "no problem is left", func() bool { return id.Problem() == "" })
}
