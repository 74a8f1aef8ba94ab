package identity

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// handshake returns the leaf certificate that a server would present.
func handshake(t *testing.T, id *Identity) *x509.Certificate {
	t.Helper()
	pair, err := id.Serving()(nil)
	if err != nil {
		t.Fatal(err)
	}
	return pair.Leaf
}

func TestSelfSigned(t *testing.T) {
	virtual(t, func(t *testing.T, b *board) {
		id, stop := b.start()
		synctest.Wait()
		first := handshake(t, id)
		if err := first.VerifyHostname("a"); err != nil || first.NotAfter.Sub(first.NotBefore) != 365*day {
			t.Errorf("%v; from %v to %v", err, first.NotBefore, first.NotAfter)
		}
		if at, err := os.Stat(b.path("pki/kubelet.key")); err != nil || at.Mode().Perm() != 0o600 {
			t.Errorf("key: %v, %v", at, err)
		}
		stop()
		id, stop = b.start()
		synctest.Wait()
		if !handshake(t, id).Equal(first) {
			t.Error("a new certificate at each start")
		}
		time.Sleep(340 * day)
		synctest.Wait()
		if leaf := handshake(t, id); leaf.Equal(first) {
			t.Errorf("the certificate ends %v and stays", leaf.NotAfter)
		}
		stop()
		b.write("pki/kubelet.crt", []byte("garbage"))
		id, _ = b.start()
		synctest.Wait()
		handshake(t, id)
		if _, err := tls.LoadX509KeyPair(b.path("pki/kubelet.crt"), b.path("pki/kubelet.key")); err != nil {
			t.Errorf("the files stay unusable: %v", err)
		}
	})
}

func TestSelfSignedBeforeTheClockIsSet(t *testing.T) {
	virtual(t, func(t *testing.T, b *board) {
		b.clock.wrong.Store(true)
		id, _ := b.start()
		synctest.Wait()
		handshake(t, id)
		if _, err := os.Stat(b.path("pki/kubelet.crt")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a certificate of 1970 is kept: %v", err)
		}
		b.ahead.Store(int64(26 * 365 * day))
		b.clock.wrong.Store(false)
		b.clock.jump()
		synctest.Wait()
		if leaf := handshake(t, id); leaf.NotAfter.Before(id.now()) {
			t.Errorf("the certificate ended %v", leaf.NotAfter)
		}
		if _, err := os.Stat(b.path("pki/kubelet.crt")); err != nil {
			t.Error(err)
		}
	})
}

func TestServingFiles(t *testing.T) {
	virtual(t, func(t *testing.T, b *board) {
		b.adjust = func(c *Config) { c.ServingCert, c.ServingKey = b.path("tls.pem"), b.path("tls.pem") }
		id, _ := b.start()
		if _, err := id.Serving()(nil); !errors.Is(err, errNoServing) {
			t.Errorf("without files: %v", err)
		}
		put := func(name string) {
			b.write("tls.pem", b.cluster.nodePair(name, time.Now(), time.Now().Add(day)))
			stamp := time.Now()
			if err := os.Chtimes(b.path("tls.pem"), stamp, stamp); err != nil {
				t.Fatal(err)
			}
		}
		put("x")
		if _, err := id.Serving()(nil); err == nil {
			t.Error("looked twice in a second")
		}
		time.Sleep(time.Second)
		if leaf := handshake(t, id); leaf.Subject.CommonName != "system:node:x" {
			t.Errorf("certificate of %v", leaf.Subject)
		}
		put("y")
		time.Sleep(time.Second)
		if leaf := handshake(t, id); leaf.Subject.CommonName != "system:node:y" {
			t.Errorf("certificate of %v after the change", leaf.Subject)
		}
		b.write("tls.pem", []byte("half"))
		time.Sleep(time.Second)
		if leaf := handshake(t, id); leaf.Subject.CommonName != "system:node:y" {
			t.Errorf("certificate of %v while the file is half", leaf.Subject)
		}
	})
}

func TestServingByTheCluster(t *testing.T) {
	virtual(t, func(t *testing.T, b *board) {
		b.cluster.life = 100 * day
		b.current(time.Now(), time.Now().Add(10*365*day))
		ips := []string{"10.0.0.2"}
		b.adjust = func(c *Config) {
			c.ServerTLSBootstrap = true
			c.HostIPs = func() []string {
				b.cluster.mu.Lock()
				defer b.cluster.mu.Unlock()
				return ips
			}
		}
		b.cluster.policy = ignore
		id, stop := b.start()
		time.Sleep(time.Hour)
		synctest.Wait()
		if _, err := id.Serving()(nil); err == nil || err.Error() != "no serving certificate available for the kubelet" {
			t.Errorf("before there is one: %v", err)
		}
		stop()
		id, _ = b.start()
		time.Sleep(time.Hour)
		synctest.Wait()
		names := b.cluster.names()
		if len(names) != 1 || b.cluster.askers()[0] != "node" {
			t.Fatalf("%d requests in two starts, by %q", len(names), b.cluster.askers())
		}
		b.cluster.change(names[0], b.cluster.approve)
		synctest.Wait()
		if leaf := handshake(t, id); leaf.VerifyHostname("a") != nil || leaf.VerifyHostname("10.0.0.2") != nil {
			t.Errorf("names %q %q", leaf.DNSNames, leaf.IPAddresses)
		}
		if _, err := os.Lstat(b.path("pki/kubelet-server-current.pem")); err != nil {
			t.Error(err)
		}
		b.cluster.mu.Lock()
		b.cluster.policy = nil
		ips = []string{"10.0.0.3", "10.0.0.2"}
		b.cluster.mu.Unlock()
		id.AddressesChanged()
		synctest.Wait()
		time.Sleep(time.Minute)
		synctest.Wait()
		if leaf := handshake(t, id); leaf.VerifyHostname("10.0.0.3") != nil || len(b.cluster.names()) != 2 {
			t.Errorf("names %q after the change", leaf.IPAddresses)
		}
		id.AddressesChanged() // to the same
		time.Sleep(60 * day)
		synctest.Wait()
		if n := len(b.cluster.names()); n != 2 {
			t.Errorf("%d requests for nothing new", n)
		}
		time.Sleep(32 * day)
		synctest.Wait()
		if n := len(b.cluster.names()); n != 3 {
			t.Errorf("%d requests after 92 of 100 days", n)
		}
	})
}

func TestServingDue(t *testing.T) {
	c := newCluster(t)
	now := time.Now()
	full, bare := servingTemplate("a", []string{"10.0.0.2"}), servingTemplate("a", nil)
	data := c.nodePair("a", now, now.Add(100*day))
	other, err := tls.X509KeyPair(data, data) // it has no address
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name      string
		template  *template
		pair      *tls.Certificate
		plausible bool
		due       bool
	}{
		{"the first", &full, nil, true, true},
		{"no address", &bare, nil, true, false},
		{"no clock", &full, nil, false, false},
		{"another address", &full, &other, true, true},
	} {
		if _, due := servingDue(row.template, row.pair, 0.5, row.plausible, now); due != row.due {
			t.Errorf("%s: due is %v", row.name, due)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for _, c := range []Config{
		{},
		{Kubeconfig: "k", PKI: "p"},
		{Kubeconfig: "k", PKI: "p", NodeName: "a", ServingCert: "c"},
	} {
		if _, err := New(c); err == nil || !strings.HasPrefix(err.Error(), "identity: ") {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
