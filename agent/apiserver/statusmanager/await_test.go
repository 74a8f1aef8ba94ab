package statusmanager

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestAwaitTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(Config{})
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "1"}}
		ended := p.DeepCopy()
		ended.Status.Phase = v1.PodFailed
		wait := func(limit time.Duration) *atomic.Int64 {
			took := new(atomic.Int64)
			took.Store(-1)
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				begun := time.Now()
				m.AwaitTerminal(ctx, func() []types.UID { return []types.UID{"1"} })
				took.Store(int64(time.Since(begun)))
			}()
			return took
		}
		took := wait(time.Minute)
		time.Sleep(time.Second)
		synctest.Wait()
		if got := took.Load(); got != 0 {
			t.Errorf("a server that never answered is waited for: %v", time.Duration(got))
		}
		m.SetPods([]*v1.Pod{p})
		took = wait(time.Minute)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if took.Load() >= 0 {
			t.Error("it does not wait for the API server")
		}
		m.SetPods([]*v1.Pod{ended})
		time.Sleep(time.Second)
		synctest.Wait()
		if got := time.Duration(took.Load()); got != 3*time.Second {
			t.Errorf("it waits %v", got)
		}
		m.SetPods([]*v1.Pod{p})
		took = wait(5 * time.Second)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := time.Duration(took.Load()); got != 5*time.Second {
			t.Errorf("it waits %v for a server that does not answer", got)
		}
		m.SetPods([]*v1.Pod{})
		took = wait(5 * time.Second)
		time.Sleep(time.Second)
		synctest.Wait()
		if got := took.Load(); got != 0 {
			t.Errorf("it waits %v for a pod that is gone", time.Duration(got))
		}
	})
}
