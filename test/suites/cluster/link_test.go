//go:build cluster

package cluster

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/tinylet/tinylet/test/harness/controlplane"
)

// badLink is a node whose way to the API server a test can make bad.
type badLink struct {
	link *controlplane.Link
}

// TestBadLink has a node go on over links that break, hang or lie.
func TestBadLink(t *testing.T) {
	l, b := newBadLink(t)
	l.run(t,
		step{"connections break while pods come and go", b.breaks},
		step{"every tenth connection is dropped", b.drops},
		step{"what answers is no server", b.garbage},
		step{"nothing comes through", b.hangs},
	)
}

// TestThinLink has a node work, and begin, over a link of 1 kB/s.
func TestThinLink(t *testing.T) {
	l, b := newBadLink(t)
	l.run(t, step{"one kilobyte a second", b.slow})
}

// newBadLink is a node that has joined by way of a link.
func newBadLink(t *testing.T) (lab, *badLink) {
	t.Helper()
	l := prepareLab(t)
	b := &badLink{link: l.c.Link(t)}
	l.vm = l.bootWith(joining(l.kubeconfig("https://"+b.link.Address(), l.c.Token(t))))
	l.until("the node is Ready", l.nodeReady)
	l.steady(2)
	return l, b
}

// passes lets the link work again, and answers how long the node took to be
// heard of.
func (b *badLink) passes(l lab) {
	l.Helper()
	now := time.Now()
	b.link.SetMode(controlplane.Pass)
	heard := l.renewedSince(now)
	l.until("the node is Ready", l.nodeReady)
	l.Logf("the link works: the lease is renewed after %.1f s, the node is Ready after %.1f s", heard.Seconds(), time.Since(now).Seconds())
	if limit := 45 * time.Second; time.Since(now) > limit {
		l.Errorf("the node is Ready %v after the link works again, want it within %v", time.Since(now), limit)
	}
}

// breaks cuts connections at many points of pods' lives.
func (b *badLink) breaks(l lab) {
	l.untouched(func() {
		pods := &churn{lab: l}
		for i := range 30 {
			if i%3 == 0 {
				pods.turn()
			}
			time.Sleep(rand.N(time.Second))
			b.link.Cut()
		}
		pods.converges()
		pods.clear()
	})
}

// drops rolls a Deployment while no connection lasts for five seconds and
// every tenth does not begin.
func (b *badLink) drops(l lab) {
	b.link.SetMode(controlplane.Drop)
	defer b.link.SetMode(controlplane.Pass)
	before, droppedBefore := b.link.Counts()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(2*time.Second + rand.N(3*time.Second)):
				// Several handshakes of an emulated board on a busy machine.
				b.link.Cut()
			}
		}
	}()
	defer func() {
		close(stop)
		<-stopped
	}()
	l.untouched(func() {
		l.c.Apply(l.T, strings.Replace(web, "replicas: 10", "replicas: 3", 1))
		l.until("three replicas run", func() string { return l.running("app=web", 3) })
		l.c.Must(l.T, "set", "env", "deployment/web", "VERSION=2")
		l.c.Must(l.T, "rollout", "status", "deployment/web", "--timeout=4m")
		l.until("three run after the rollout", func() string { return l.running("app=web", 3) })
		l.c.Must(l.T, "delete", "deployment/web", "--wait=false")
		l.gone("app=web")
	})
	accepted, dropped := b.link.Counts()
	l.Logf("%d connections, of which %d were dropped", accepted-before, dropped-droppedBefore)
	if dropped == droppedBefore {
		l.Error("no connection was dropped: nothing is tested")
	}
}

// garbage puts something else in the server's place.
func (b *badLink) garbage(l lab) {
	l.untouched(func() {
		b.link.SetMode(controlplane.Garbage)
		b.link.Cut()
		l.until("tinylet status shows what is wrong", func() string {
			if s := l.status(); s.Cluster.Failure == "" {
				return fmt.Sprintf("%+v", s)
			}
			return ""
		})
		l.Logf("tinylet status:\n%s", l.sh("tinylet status"))
		time.Sleep(20 * time.Second)
		b.passes(l)
	})
}

// hangs has the link stall without a sign, for longer than the node's lease
// lasts.
func (b *badLink) hangs(l lab) {
	l.untouched(func() {
		began := time.Now()
		b.link.SetMode(controlplane.Hang)
		l.until("the agent gives the connection up", func() string {
			if !b.link.Left().After(began) {
				return "it does not"
			}
			return ""
		})
		took := b.link.Left().Sub(began)
		l.Logf("a dead link is noticed after %.1f s", took.Seconds())
		if took > 30*time.Second {
			l.Errorf("a dead link is noticed after %v, want it within 30 s", took)
		}
		l.until("the cluster misses the node", func() string {
			if l.nodeReady() == "" {
				return "it does not"
			}
			return ""
		})
		b.passes(l)
		if s := l.status(); s.Cluster.Failure != "" {
			l.Errorf("tinylet status still shows %q", s.Cluster.Failure)
		}
	})
}

const thin = `apiVersion: v1
kind: ConfigMap
metadata: {name: thin}
data: {color: blue}
---
apiVersion: v1
kind: Pod
metadata: {name: thin, labels: {app: thin}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: main, image: "localhost/busybox:1", command: [sleep, "100000"], envFrom: [{configMapRef: {name: thin}}]}
`

// slow has a pod started over a link of 1 kB/s, and an agent that begins there
// with a list of all its pods.
func (b *badLink) slow(l lab) {
	l.untouched(func() {
		l.c.Apply(l.T, strings.Replace(web, "replicas: 10", "replicas: 4", 1))
		l.until("four replicas run", func() string { return l.running("app=web", 4) })
		lapses := l.lapses()
		b.link.SetMode(controlplane.Slow)
		b.link.Cut()
		began := time.Now()
		l.c.Apply(l.T, thin)
		l.until("a pod runs over a slow link", func() string { return l.running("app=thin", 1) })
		l.Logf("a pod that was created after the link broke runs after %.0f s", time.Since(began).Seconds())
		l.sh("/etc/init.d/S50tinylet restart")
		began = time.Now()
		l.c.Must(l.T, "delete", "pod/thin", "--wait=false")
		l.gone("app=thin")
		l.Logf("an agent that begins on a slow link with %d pods hears of a deletion after %.0f s", len(l.pods("")), time.Since(began).Seconds())
		time.Sleep(30 * time.Second)
		l.Logf("the cluster missed the node %d times in %.0f s over a slow link", l.lapses()-lapses, time.Since(began).Seconds())
		b.passes(l)
		l.c.Must(l.T, "delete", "deployment/web", "--wait=false")
		l.gone("app=web")
	})
}
