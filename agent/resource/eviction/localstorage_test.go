package eviction

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tinylet/tinylet/agent/resource/eviction/policy"
)

// Pods are measured only while one has a limit, and a pod above its limit is evicted.
func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := resource.MustParse("1Mi")
		limited := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "limited"}}
		limited.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: &limit}}}}
		var mu sync.Mutex // guards what follows
		var there []*v1.Pod
		var used int64
		var evicted []string
		looks, known := 0, true
		status := NewStatus()
		l := newLocalStorage(localStorageConfig{
			Added:  status.limited,
			Layout: func() (policy.Layout, bool) { mu.Lock(); defer mu.Unlock(); return policy.OneFs, known },
			Pods: func(context.Context) (out []policy.Pod) {
				mu.Lock()
				defer mu.Unlock()
				for _, p := range there {
					out = append(out, policy.Pod{Pod: p, Known: true, Volumes: []policy.Volume{{Name: "v", Disk: policy.Disk{Bytes: policy.Measured(used)}}}})
				}
				return out
			},
			Evict: func(p *v1.Pod, e policy.Eviction) <-chan struct{} {
				if e.Condition != nil || e.Grace != time.Second || e.Signal != "emptydirfs.limit" {
					t.Errorf("evicted as %+v", e)
				}
				mu.Lock()
				defer mu.Unlock()
				evicted, there = append(evicted, p.Name), nil
				return nil
			},
			AfterCheck: func() { mu.Lock(); defer mu.Unlock(); looks++ },
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- l.run(ctx) }()
		status.PodAdded(&v1.Pod{})
		time.Sleep(time.Hour)
		synctest.Wait()
		if looks != 0 {
			t.Errorf("%d looks without a limit", looks)
		}
		set := func(change func()) { mu.Lock(); defer mu.Unlock(); change() }
		set(func() { known, there = false, []*v1.Pod{limited} })
		status.PodAdded(limited)
		status.PodAdded(limited)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if looks != 0 {
			t.Errorf("%d looks before the layout is known", looks)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		set(func() { known, used = true, 1<<20 })
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if looks != 10 || evicted != nil {
			t.Errorf("%d looks in five minutes, evicted %v", looks, evicted)
		}
		set(func() { used++ })
		time.Sleep(localStoragePeriod)
		synctest.Wait()
		if len(evicted) != 1 {
			t.Errorf("over its limit, evicted %v", evicted)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		before := looks
		time.Sleep(time.Hour)
		synctest.Wait()
		if looks != before {
			t.Errorf("%d looks when nobody is left", looks-before)
		}
		cancel()
		<-done
	})
}
