//go:build cluster

package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestServerFaults has the control plane do what control planes do while a
// node is joined.
func TestServerFaults(t *testing.T) {
	l := newLab(t)
	l.until("the node is Ready", l.nodeReady)
	l.steady(2)
	l.run(t,
		step{"history is gone", lab.compacted},
		step{"ten restarts", lab.tenRestarts},
		step{"two minutes away", lab.twoMinutes},
	)
}

// compacted has the server forget what a node that is away still has to hear.
func (l lab) compacted() {
	l.untouched(func() {
		pods := &churn{lab: l}
		for range 4 {
			pods.turn()
		}
		pods.converges()
		// The kernel would bring what a connection still holds, when the link
		// is whole again.
		l.c.StopAPIServer(l.T)
		l.c.Partition(l.T, name)
		l.c.StartAPIServer(l.T)
		for range 6 {
			pods.turn()
		}
		l.c.CompactStore(l.T)
		// The server's own memory of the last changes goes as well.
		l.c.StopAPIServer(l.T)
		l.c.StartAPIServer(l.T)
		for range 2 {
			pods.turn()
		}
		healed := time.Now()
		l.c.Heal(l.T, name)
		l.Logf("the link is whole: the lease is renewed after %.1f s", l.renewedSince(healed).Seconds())
		pods.converges()
		lists := 0
		for _, e := range l.c.AuditLog(l.T) {
			if e.User.Username == "system:node:"+name && e.Verb == "list" && e.Object.Resource == "pods" && e.Received.After(healed) {
				lists++
			}
		}
		if lists == 0 {
			l.Error("the node has listed no pods anew: nothing is tested")
		}
		l.until("the node is Ready", l.nodeReady)
		pods.clear()
	})
}

// tenRestarts kills the API server time and again while pods come and go.
func (l lab) tenRestarts() {
	l.untouched(func() {
		pods := &churn{lab: l}
		for i := range 10 {
			pods.turn()
			time.Sleep(time.Duration(i%4) * 500 * time.Millisecond)
			l.c.StopAPIServer(l.T)
			l.c.StartAPIServer(l.T)
			pods.turn()
		}
		pods.converges()
		l.until("the node is Ready", l.nodeReady)
		pods.clear()
	})
}

// twoMinutes is how late the cluster hears of a node, and of what happened to
// its pods, after its server was away.
func (l lab) twoMinutes() {
	const ends = "while [ ! -e /tmp/end ]; do sleep 1; done"
	l.c.Apply(l.T, strings.Replace(single("ends", ends), "spec:\n", "spec:\n  restartPolicy: Never\n", 1))
	l.until("it runs", func() string { return l.running("app=ends", 1) })
	l.untouched(func() {
		l.c.StopAPIServer(l.T)
		time.Sleep(time.Minute)
		id := l.sh(`ctr -n k8s.io task ls | awk '$3 == "RUNNING" {print $1}' | while read -r t; do
ctr -n k8s.io container info "$t" | grep -q '"io.kubernetes.pod.name": "ends"' &&
ctr -n k8s.io container info "$t" | grep -q '"io.kubernetes.container.name": "main"' && echo "$t"; done; true`)
		l.sh("ctr -n k8s.io task exec --exec-id end " + id + " touch /tmp/end")
		time.Sleep(time.Minute)
		l.c.StartAPIServer(l.T)
		back := time.Now()
		heard, ended := time.Duration(0), time.Duration(0)
		l.until("the server hears of the node and of its pod", func() string {
			if ended == 0 && l.pods("app=ends")[0].Status.Phase == "Succeeded" {
				ended = time.Since(back)
			}
			if heard == 0 && l.patchedSince(back) {
				heard = time.Since(back)
			}
			if heard == 0 || ended == 0 {
				return fmt.Sprintf("heard of the node after %v, of the pod after %v", heard, ended)
			}
			return ""
		})
		l.until("the node is Ready", l.nodeReady)
		stable := time.Since(back)
		l.Logf("the API server is back: it hears of the node after %.1f s, of a pod that ended meanwhile after %.1f s, the node is Ready after %.1f s",
			heard.Seconds(), ended.Seconds(), stable.Seconds())
		if limit := 20 * time.Second; heard > limit || ended > limit || stable > limit {
			l.Errorf("that took longer than %v", limit)
		}
		time.Sleep(15 * time.Second) // three looks of the node controller
		if got := l.nodeReady(); got != "" {
			l.Errorf("the node is %s again", got)
		}
	})
	l.c.Must(l.T, "delete", "pod/ends", "--wait=false")
	l.gone("app=ends")
}

// patchedSince says that the node has renewed its lease after a moment.
func (l lab) patchedSince(moment time.Time) bool {
	l.Helper()
	for _, e := range l.c.AuditLog(l.T) {
		if e.User.Username == "system:node:"+name && e.Object.Resource == "leases" && e.Response.Code == 200 && e.Received.After(moment) {
			return true
		}
	}
	return false
}
