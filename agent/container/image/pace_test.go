package image

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container/fake"
)

// TestPullsArePaced: after a burst each pull waits, and none fails for it.
func TestPullsArePaced(t *testing.T) {
	for _, tt := range []struct {
		name string
		c    Config
		took time.Duration // of seven pulls, one after the other
	}{
		{"the rate", Config{QPS: 2, Burst: 3}, 2 * time.Second},
		{"in turn", Config{QPS: 2, Burst: 3, Serialize: true}, 2 * time.Second},
		{"no burst", Config{QPS: 2}, 3 * time.Second},
		{"no limit", Config{}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, tt.c)
				begun := time.Now()
				for i := range 7 {
					image := fmt.Sprintf("localhost/app:%d", i)
					b.rt.SetPull(image, fake.Pull{})
					b.works("a", image, v1.PullAlways)
				}
				if took := time.Since(begun); took.Round(time.Second) != tt.took {
					t.Errorf("seven pulls took %v, want %v", took, tt.took)
				}
			})
		})
	}
}

// TestWaitForAPullEnds shows that the wait ends with its context and returns
// its place in the rate limit.
func TestWaitForAPullEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{QPS: 1, Burst: 1, Serialize: true})
		for _, image := range []string{"localhost/app:1", "localhost/app:2", "localhost/app:3"} {
			b.rt.SetPull(image, fake.Pull{})
		}
		begun := time.Now()
		b.works("a", "localhost/app:1", v1.PullAlways)
		ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, errors.New("the pod is gone"))
		defer cancel()
		if _, err := b.ensure(ctx, "b", "localhost/app:2", v1.PullAlways); err == nil || ctx.Err() == nil {
			t.Errorf("got %v", err)
		}
		b.works("c", "localhost/app:3", v1.PullAlways)
		if took := time.Since(begun).Round(time.Second); took != time.Second {
			t.Errorf("the third begins after %v: the second has kept its place", took)
		}
		if n := b.rt.Count("PullImage"); n != 2 {
			t.Errorf("%d pulls", n)
		}
	})
}
