package wait

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestBackoff(t *testing.T) {
	for range 100 {
		b := Backoff{Max: 5 * time.Second}
		for _, limit := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second, 5 * time.Second} {
			if d := b.Next(); d < limit/2 || d > limit {
				t.Fatalf("wait %v, want %v to %v", d, limit/2, limit)
			}
		}
		if b.Reset(); b.Next() > time.Second {
			t.Fatal("reset does nothing")
		}
	}
}

func TestBackoffWaitEndsEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := Backoff{First: time.Hour, Max: time.Hour}
		began := time.Now()
		back := make(chan struct{})
		time.AfterFunc(time.Minute, func() { close(back) })
		if !b.Wait(t.Context(), back) {
			t.Error("it says that its context has ended")
		}
		if d := time.Since(began); d < time.Minute || d > time.Minute+spread {
			t.Errorf("waited %v, want what the outage takes and a moment", d)
		}
		if b.Wait(t.Context(), nil); time.Since(began) < 30*time.Minute {
			t.Errorf("waited %v without an outage that ends", time.Since(began))
		}
		for _, again := range []chan struct{}{nil, back} {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if b.Wait(ctx, again) && again == nil {
				t.Error("it says that its context lives")
			}
		}
	})
}
