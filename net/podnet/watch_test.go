package podnet

import (
	"context"
	"testing"
	"time"

	"github.com/tinylet/tinylet/net/netns"
	"github.com/tinylet/tinylet/net/nft"
)

// TestWatch hears of what others do to the rules, and of no pod.
func TestWatch(t *testing.T) {
	l := newLab(t, nil)
	l.must(l.net.Ensure)
	ctx, cancel := context.WithCancel(t.Context())
	told, ended := make(chan struct{}, 1024), make(chan error, 1)
	go func() {
		ended <- netns.Do(l.host, func() error { return Watch(ctx, "pods0", func() { told <- struct{}{} }) })
	}()
	heard := func(limit time.Duration) bool {
		select {
		case <-told:
			return true
		case <-time.After(limit):
			return false
		}
	}
	// It listens once it has told of a change.
	for try := 0; ; try++ {
		l.run("nft", "add", "rule", "inet", "tinylet", "guard", "accept")
		if heard(100 * time.Millisecond) {
			break
		}
		if try == 100 {
			t.Fatal("a rule more was not told")
		}
	}
	l.must(l.net.Ensure)
	for heard(200 * time.Millisecond) { // what that has mended
	}
	p := l.start(func(p *Pod) { p.Ports = []nft.Port{{Protocol: nft.TCP, Host: 8080, Target: 80}} })
	l.must(func() error { return l.net.Teardown(p.ID) })
	l.run("nft", "add", "table", "inet", "other")
	if heard(300 * time.Millisecond) {
		t.Error("a pod or another table was told")
	}
	l.run("nft", "flush", "ruleset")
	if !heard(10 * time.Second) {
		t.Error("flushed rules were not told")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
