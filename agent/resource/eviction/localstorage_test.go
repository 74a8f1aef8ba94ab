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
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/resource/diskusage"
	"github.com/tinylet/tinylet/agent/resource/eviction/policy"
)

// limitedPods are active pods with a volume.
type limitedPods struct {
	active func() []pod.Entry
	used   func() uint64 // bytes of the volume
	evict  func(*v1.Pod, policy.Eviction)
}

func (l *limitedPods) Running() []pod.Entry                 { return nil }
func (l *limitedPods) Active() []pod.Entry                  { return l.active() }
func (l *limitedPods) Kill(*v1.Pod) error                   { return nil }
func (l *limitedPods) Rehearse(policy.Eviction)             {}
func (l *limitedPods) NotifyChanges(chan<- struct{}) func() { return func() {} }
func (l *limitedPods) MeasureFully(context.Context) error   { return nil }

func (l *limitedPods) Evict(p *v1.Pod, e policy.Eviction) <-chan struct{} {
	l.evict(p, e)
	return nil
}

func (l *limitedPods) Pod(context.Context, string, []string) (diskusage.PodUsage, error) {
	v := statsapi.VolumeStats{Name: "v"}
	v.UsedBytes = new(l.used())
	return diskusage.PodUsage{Volumes: []diskusage.VolumeUsage{{Stats: v}}}, nil
}

// Pods are measured only while one has a limit, and a pod above its limit is evicted.
func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := resource.MustParse("1Mi")
		limited := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "limited"}}
		limited.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: &limit}}}}
		var mu sync.Mutex // guards what follows
		var there []*v1.Pod
		var used uint64
		var evicted []string
		checks := 0
		pods := &limitedPods{
			active: func() (out []pod.Entry) {
				mu.Lock()
				defer mu.Unlock()
				checks++
				for _, p := range there {
					out = append(out, pod.Entry{Pod: p})
				}
				return out
			},
			used: func() uint64 { mu.Lock(); defer mu.Unlock(); return used },
			evict: func(p *v1.Pod, e policy.Eviction) {
				if e.Condition != nil || e.Grace != time.Second || e.Signal != "emptydirfs.limit" {
					t.Errorf("evicted as %+v", e)
				}
				mu.Lock()
				defer mu.Unlock()
				evicted, there = append(evicted, p.Name), nil
			},
		}
		m := New(Config{Pods: pods, DiskUsage: pods})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- m.RunLocalStorage(ctx) }()
		m.PodAdded(&v1.Pod{})
		time.Sleep(time.Hour)
		synctest.Wait()
		if checks != 0 {
			t.Errorf("%d checks without a limit", checks)
		}
		set := func(change func()) { mu.Lock(); defer mu.Unlock(); change() }
		set(func() { there = []*v1.Pod{limited} })
		m.PodAdded(limited)
		m.PodAdded(limited)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if checks != 0 {
			t.Errorf("%d checks before the layout is known", checks)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		m.fs.Store(&fileSystems{layout: policy.OneFs})
		set(func() { used = 1 << 20 })
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if checks != 10 || evicted != nil {
			t.Errorf("%d checks in five minutes, evicted %v", checks, evicted)
		}
		set(func() { used++ })
		time.Sleep(localStoragePeriod)
		synctest.Wait()
		if len(evicted) != 1 {
			t.Errorf("over its limit, evicted %v", evicted)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		before := checks
		time.Sleep(time.Hour)
		synctest.Wait()
		if checks != before {
			t.Errorf("%d checks without pods", checks-before)
		}
		cancel()
		<-done
	})
}
