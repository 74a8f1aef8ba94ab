package identity

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/wait"
)

const day = 24 * time.Hour

// expiry returns when the current client certificate expires.
func expiry(t *testing.T, b *board) time.Time {
	t.Helper()
	pair, err := (&store{dir: b.path("pki"), prefix: "kubelet-client"}).load()
	if err != nil {
		t.Fatal(err)
	}
	return pair.Leaf.NotAfter
}

// virtual runs a test on a node in virtual time.
func virtual(t *testing.T, test func(t *testing.T, b *board)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newBoard(t, newCluster(t), true)) })
}

func TestRenewal(t *testing.T) {
	from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	leaf := &x509.Certificate{NotBefore: from, NotAfter: from.Add(100 * day)}
	for share, want := range map[float64]time.Duration{0: 70 * day, 0.5: 80 * day, 1: 90 * day} {
		if got := renewal(leaf, share).Sub(from); (got - want).Abs() > time.Minute {
			t.Errorf("share %v: after %v, want %v", share, got, want)
		}
	}
}

func TestRotates(t *testing.T) {
	virtual(t, func(t *testing.T, b *board) {
		b.cluster.life = 100 * day
		start := time.Now()
		b.current(start, start.Add(100*day))
		id, _ := b.start()
		synctest.Wait()
		time.Sleep(69 * day)
		synctest.Wait()
		if n := len(b.cluster.names()); n != 0 {
			t.Fatalf("%d requests after 69 days", n)
		}
		time.Sleep(22 * day)
		synctest.Wait()
		if n := len(b.cluster.names()); n != 1 || b.cluster.askers()[0] != "node" {
			t.Fatalf("%d requests after 91 days, by %q", n, b.cluster.askers())
		}
		if end := expiry(t, b); end.Before(start.Add(169*day)) || !id.Stats().ClientExpiry.Equal(end) {
			t.Errorf("the certificate ends %v, %v", end, id.Stats())
		}
		if b.cluster.reconnects() == 0 {
			t.Error("the client did not connect anew")
		}
		if _, err := os.Stat(b.path("pki/kubelet-client.key.tmp")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the key is left: %v", err)
		}
		time.Sleep(365 * day)
		synctest.Wait()
		if n := len(b.cluster.names()); n < 4 || n > 7 {
			t.Errorf("%d requests in 456 days", n)
		}
	})
}

// TestIssuedOld runs a node whose clock is eleven months ahead of its cluster's.
func TestIssuedOld(t *testing.T) {
	virtual(t, func(t *testing.T, b *board) {
		b.cluster.age, b.cluster.life = 340*day, 25*day
		b.kubeconfig("bootstrap-kubelet.conf", withToken)
		id, _ := b.start()
		time.Sleep(day)
		synctest.Wait()
		if n := len(b.cluster.names()); n < 2 || n > 110 {
			t.Errorf("%d requests in a day", n)
		}
		if n := strings.Count(b.log.String(), "clock is ahead"); n != 1 {
			t.Errorf("told %d times:\n%s", n, b.log.String())
		}
		select {
		case <-id.ready: // it is valid after all
		default:
			t.Error("no client")
		}
	})
}

func TestRotationTurnedOff(t *testing.T) {
	virtual(t, func(t *testing.T, b *board) {
		b.current(time.Now(), time.Now().Add(100*day))
		b.adjust = func(c *Config) { c.Rotate = false }
		id, _ := b.start()
		time.Sleep(99 * day)
		synctest.Wait()
		if len(b.cluster.names()) != 0 || id.Problem() != "" {
			t.Errorf("requests %q, problem %q", b.cluster.names(), id.Problem())
		}
		if _, err := id.present(); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * day)
		synctest.Wait()
		if !strings.Contains(id.Problem(), "expired") {
			t.Errorf("problem %q", id.Problem())
		}
		if _, err := id.present(); err == nil {
			t.Error("an expired certificate is shown")
		}
	})
}

func TestSleepUntil(t *testing.T) {
	for _, row := range []struct {
		name  string
		until func(now time.Time) time.Time
		want  time.Duration
	}{
		{"no time", func(time.Time) time.Time { return time.Time{} }, 24 * time.Hour},
		{"a past time", func(now time.Time) time.Time { return now.Add(-time.Hour) }, time.Second},
		{"a time", func(now time.Time) time.Time { return now.Add(time.Hour) }, time.Hour + time.Second},
		{"the last time of a certificate", func(time.Time) time.Time {
			return time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
		}, 24 * time.Hour},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
				defer cancel()
				start := time.Now()
				sleepUntil(ctx, time.Now, row.until(start), nil, nil)
				if got := time.Since(start); got != row.want {
					t.Errorf("it waits %v, want %v", got, row.want)
				}
			})
		})
	}
}

// TestCertificateIsAwayForAWhile checks that a connection from the time without the file
// is not kept.
func TestCertificateIsAwayForAWhile(t *testing.T) {
	virtual(t, func(t *testing.T, b *board) {
		b.current(time.Now(), time.Now().Add(100*day))
		id, _ := b.start()
		synctest.Wait()
		from, to := b.path("pki/kubelet-client-old.pem"), b.path("away.pem")
		for _, move := range [][2]string{{from, to}, {to, from}} {
			if n := b.cluster.reconnects(); n != 0 {
				t.Errorf("%d reconnects while nothing was better", n)
			}
			if err := os.Rename(move[0], move[1]); err != nil {
				t.Fatal(err)
			}
			wait.Notify(id.again)
			synctest.Wait()
		}
		if n := b.cluster.reconnects(); n != 1 || id.Problem() != "" {
			t.Errorf("%d reconnects with the file back, problem %q", n, id.Problem())
		}
	})
}

// TestKubeconfigChanges changes what the running client cannot change.
func TestKubeconfigChanges(t *testing.T) {
	virtual(t, func(t *testing.T, b *board) {
		b.kubeconfig("kubelet.conf", withToken)
		id, _ := b.start()
		for _, row := range []struct {
			changed string
			change  func(*Kubeconfig)
		}{
			{"", func(*Kubeconfig) {}},
			{"server", func(k *Kubeconfig) { k.Server = "https://other:6443" }},
			{"server name", func(k *Kubeconfig) { k.ServerName = "other" }},
			{"CA", func(k *Kubeconfig) { k.CA = []byte("other") }},
			{"CA, verification", func(k *Kubeconfig) { k.CA, k.Insecure = nil, true }},
			{"proxy", func(k *Kubeconfig) { k.Proxy = &url.URL{Scheme: "http", Host: "other"} }},
			{"token", func(k *Kubeconfig) { k.Token = "other" }},
			{"", func(*Kubeconfig) {}},
		} {
			b.kubeconfig("kubelet.conf", func(k *Kubeconfig) { withToken(k); row.change(k) })
			for range 2 {
				wait.Notify(id.again)
				synctest.Wait()
			}
			want := ""
			if row.changed != "" {
				want = "kubeconfig " + b.path("kubelet.conf") + " changed its " + row.changed + ": restart tinylet to use it"
				if n := strings.Count(b.log.String(), fmt.Sprintf("changed=%q", row.changed)) +
					strings.Count(b.log.String(), "changed="+row.changed+" "); n != 1 {
					t.Errorf("the change of %s is logged %d times:\n%s", row.changed, n, b.log.String())
				}
			}
			if got := id.Problem(); got != want {
				t.Errorf("problem %q, want %q", got, want)
			}
		}
	})
}

// TestTroubleOfTheLastAttempt removes the bootstrap kubeconfig while its request waits for
// approval.
func TestTroubleOfTheLastAttempt(t *testing.T) {
	virtual(t, func(t *testing.T, b *board) {
		b.kubeconfig("bootstrap-kubelet.conf", withToken)
		b.cluster.policy = ignore
		id, _ := b.start()
		time.Sleep(autoApprovalTimeout + time.Second)
		synctest.Wait()
		if !strings.Contains(id.Problem(), "approve") {
			t.Errorf("problem %q", id.Problem())
		}
		if err := os.Remove(b.path("bootstrap-kubelet.conf")); err != nil {
			t.Fatal(err)
		}
		wait.Notify(id.again)
		synctest.Wait()
		if strings.Contains(id.Problem(), "approve") {
			t.Errorf("problem %q without an attempt", id.Problem())
		}
	})
}

// TestClockJumpsOverTheDeadline sets the clock to after the renewal while the timer
// is still based on the old time.
func TestClockJumpsOverTheDeadline(t *testing.T) {
	virtual(t, func(t *testing.T, b *board) {
		b.current(time.Now(), time.Now().Add(100*day))
		b.start()
		synctest.Wait()
		b.ahead.Store(int64(95 * day))
		synctest.Wait()
		if n := len(b.cluster.names()); n != 0 {
			t.Fatalf("%d requests before anybody said that the clock was set", n)
		}
		b.clock.jump()
		synctest.Wait()
		if n := len(b.cluster.names()); n != 1 {
			t.Errorf("%d requests", n)
		}
	})
}

func TestOutage(t *testing.T) {
	virtual(t, func(t *testing.T, b *board) {
		b.kubeconfig("bootstrap-kubelet.conf", withToken)
		b.cluster.fail(errors.New("no route to host"))
		id, _ := b.start()
		time.Sleep(5 * time.Hour)
		synctest.Wait()
		if n := strings.Count(b.log.String(), "no route to host"); n != 1 {
			t.Errorf("an outage of 5 hours is logged %d times", n)
		}
		b.cluster.fail(nil)
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		select {
		case <-id.ready:
		default:
			t.Fatal("no client a minute after the outage")
		}
		if n := strings.Count(b.log.String(), "certificate management recovered"); n != 1 {
			t.Errorf("the end is logged %d times", n)
		}
	})
}

func TestNeverApproved(t *testing.T) {
	virtual(t, func(t *testing.T, b *board) {
		b.kubeconfig("bootstrap-kubelet.conf", withToken)
		b.cluster.policy = ignore
		id, _ := b.start()
		time.Sleep(autoApprovalTimeout + time.Second)
		synctest.Wait()
		names := b.cluster.names()
		if len(names) != 1 {
			t.Fatalf("%d requests", len(names))
		}
		// Who looks at once need not wait until it takes long.
		if !strings.Contains(id.Problem(), "kubectl certificate approve "+names[0]) {
			t.Errorf("problem %q", id.Problem())
		}
		time.Sleep(5 * time.Hour)
		synctest.Wait()
		if n := len(b.cluster.names()); n != 1 {
			t.Fatalf("%d requests", n)
		}
		if n := strings.Count(b.log.String(), "kubectl certificate approve "+names[0]); n != 1 {
			t.Errorf("the command is logged %d times:\n%s", n, b.log.String())
		}
		if !strings.Contains(id.Problem(), "kubectl certificate approve "+names[0]) && !strings.Contains(id.Problem(), "kubectl get csr") {
			t.Errorf("problem %q", id.Problem())
		}
		// Clusters delete requests that nobody answers.
		b.cluster.change(names[0], nil)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if n := len(b.cluster.names()); n != 2 {
			t.Fatalf("%d requests after the first is gone", n)
		}
		b.cluster.change(names[0], b.cluster.approve)
		synctest.Wait()
		if id.Problem() != "" {
			t.Errorf("problem %q", id.Problem())
		}
	})
}

// TestWatchesThatEnd checks that a request is reported although no watch of it lasts.
func TestWatchesThatEnd(t *testing.T) {
	for _, row := range []struct {
		name  string
		watch error
		then  func(b *board, id *Identity)
	}{
		{"watches of 5 s", nil, func(b *board, _ *Identity) { b.cluster.Cut() }},
		{"no watches", errors.New("no watches"), func(*board, *Identity) {}},
		{"changes of files", nil, func(_ *board, id *Identity) { wait.Notify(id.again) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			virtual(t, func(t *testing.T, b *board) {
				b.kubeconfig("bootstrap-kubelet.conf", withToken)
				b.cluster.policy = ignore
				b.cluster.step = func(step string) error {
					if step == "ask watch" {
						return row.watch
					}
					return nil
				}
				id, _ := b.start()
				for range 6 {
					time.Sleep(5 * time.Second)
					row.then(b, id)
				}
				synctest.Wait()
				if !strings.Contains(id.Problem(), "kubectl certificate approve") {
					t.Errorf("problem %q", id.Problem())
				}
			})
		})
	}
}

// TestApprovedButNotSigned has a cluster whose signer does not work.
func TestApprovedButNotSigned(t *testing.T) {
	virtual(t, func(t *testing.T, b *board) {
		b.kubeconfig("bootstrap-kubelet.conf", withToken)
		b.cluster.policy = ignore
		id, _ := b.start()
		time.Sleep(time.Minute)
		synctest.Wait()
		name := b.cluster.names()[0]
		b.cluster.change(name, func(r *certificatesv1.CertificateSigningRequest) {
			r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: v1.ConditionTrue}}
		})
		synctest.Wait()
		if strings.Contains(b.log.String(), "not signed") {
			t.Errorf("reported at once:\n%s", b.log.String())
		}
		for _, after := range []time.Duration{autoApprovalTimeout, approvalLimit} {
			time.Sleep(after + time.Second)
			synctest.Wait()
			if p := id.Problem(); strings.Contains(p, "waiting for approval") || !strings.Contains(p, "not signed") && !strings.Contains(p, "no certificate yet") {
				t.Errorf("problem %q", id.Problem())
			}
		}
		if n := strings.Count(b.log.String(), "approved but not signed"); n != 1 {
			t.Errorf("logged %d times:\n%s", n, b.log.String())
		}
		b.cluster.change(name, b.cluster.approve)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if id.Problem() != "" {
			t.Errorf("problem %q", id.Problem())
		}
	})
}

func TestDeniedForADay(t *testing.T) {
	virtual(t, func(t *testing.T, b *board) {
		b.kubeconfig("bootstrap-kubelet.conf", withToken)
		b.cluster.policy = deny
		b.start()
		time.Sleep(day)
		synctest.Wait()
		names := b.cluster.names()
		if n := len(names); n < 48 || n > 110 {
			t.Errorf("%d requests in a day", n)
		}
		for i, name := range names[1:] {
			if name == names[i] {
				t.Errorf("the request that was denied is made again")
			}
		}
	})
}

func TestExpiredOffline(t *testing.T) {
	for _, row := range []struct {
		name, file string
		asked      int
		problem    string
	}{
		{"nothing to enrol with", "", 0, "kubeadm token create"},
		{"a bootstrap kubeconfig", "bootstrap-kubelet.conf", 1, ""},
		{"an enrolment kubeconfig", "enrol.conf", 1, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			virtual(t, func(t *testing.T, b *board) {
				now := time.Now()
				b.current(now.Add(-2*day), now.Add(-day))
				b.adjust = func(c *Config) { c.EnrolKubeconfig = b.path("enrol.conf") }
				if row.file != "" {
					b.kubeconfig(row.file, withToken)
				}
				id, _ := b.start()
				synctest.Wait()
				if n := len(b.cluster.names()); n != row.asked {
					t.Errorf("%d requests", n)
				}
				if row.problem == "" != (id.Problem() == "") || !strings.Contains(id.Problem(), row.problem) {
					t.Errorf("problem %q", id.Problem())
				}
				// The log has each event once.
				if told := b.log.String(); strings.Count(told, "NoCredentials") != 1-row.asked || !strings.Contains(told, row.problem) {
					t.Errorf("log %s", told)
				}
				select {
				case <-id.ready:
					if row.asked == 0 {
						t.Error("there is a client")
					}
				default:
					if row.asked != 0 {
						t.Error("there is no client")
					}
				}
			})
		})
	}
}

// TestLeftBootstrapToken has a bootstrap kubeconfig that was never removed and
// whose token has expired.
func TestLeftBootstrapToken(t *testing.T) {
	b := newBoard(t, newCluster(t), false)
	b.current(time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour))
	b.kubeconfig("bootstrap-kubelet.conf", func(k *Kubeconfig) { k.Token = "abcdef.aaaaaaaaaaaaaaaa" })
	b.kubeconfig("enrol.conf", withToken)
	b.adjust = func(c *Config) { c.EnrolKubeconfig = b.path("enrol.conf") }
	id, _ := b.start()
	b.isNode(id)
}

// TestEnrolmentIsForTheExpired checks that the enrolment credentials are not used
// for other purposes.
func TestEnrolmentIsForTheExpired(t *testing.T) {
	for _, prepare := range []func(b *board){
		func(*board) {},
		func(b *board) { b.current(time.Now(), time.Now().Add(day)) },
		func(b *board) {
			b.current(time.Now().Add(-2*day), time.Now().Add(-day))
			b.clock.wrong.Store(true)
		},
	} {
		virtual(t, func(t *testing.T, b *board) {
			b.adjust = func(c *Config) { c.EnrolKubeconfig = b.path("enrol.conf") }
			b.kubeconfig("enrol.conf", withToken)
			prepare(b)
			b.start()
			time.Sleep(time.Hour)
			synctest.Wait()
			if names := b.cluster.names(); len(names) != 0 {
				t.Errorf("requests %q", names)
			}
		})
	}
}

func TestExpiresWhileRunning(t *testing.T) {
	virtual(t, func(t *testing.T, b *board) {
		b.current(time.Now(), time.Now().Add(5*time.Hour))
		b.adjust = func(c *Config) { c.EnrolKubeconfig = b.path("enrol.conf") }
		b.kubeconfig("enrol.conf", withToken)
		b.cluster.fail(errors.New("no route to host"))
		id, _ := b.start()
		time.Sleep(6 * time.Hour)
		synctest.Wait()
		if !strings.Contains(id.Problem(), "expired") {
			t.Errorf("problem %q", id.Problem())
		}
		b.cluster.fail(nil)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if _, err := id.present(); err != nil || id.Problem() != "" || fmt.Sprint(b.cluster.askers()) != "[token]" {
			t.Errorf("%v, problem %q, requests by %q", err, id.Problem(), b.cluster.askers())
		}
	})
}

func TestClockComesLater(t *testing.T) {
	virtual(t, func(t *testing.T, b *board) {
		now := time.Now()
		b.current(now.Add(-2*day), now.Add(-day))
		b.kubeconfig("bootstrap-kubelet.conf", withToken)
		b.clock.wrong.Store(true)
		id, _ := b.start()
		time.Sleep(day)
		synctest.Wait()
		if n := len(b.cluster.names()); n != 0 {
			t.Fatalf("%d requests with a wrong clock", n)
		}
		select {
		case <-id.ready: // its requests wait for the clock
		default:
			t.Error("no client while the certificate cannot be judged")
		}
		b.clock.wrong.Store(false)
		b.clock.jump()
		synctest.Wait()
		if n := len(b.cluster.names()); n != 1 || id.Problem() != "" {
			t.Errorf("%d requests, problem %q", n, id.Problem())
		}
	})
}
