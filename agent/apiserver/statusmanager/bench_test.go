package statusmanager_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"sync/atomic"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/apiserver/statusmanager"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/wait"
)

// sink accepts every status at once and counts them.
type sink struct {
	apiclient.API
	status *v1.PodStatus
	rv     atomic.Int64
	taken  chan struct{}
	bytes  atomic.Int64
}

func (s *sink) Patch(_ context.Context, _ apiclient.Resource, namespace, name, _ string, _ types.PatchType, patch []byte, into runtime.Object) error {
	p := into.(*v1.Pod)
	p.Namespace, p.Name, p.UID = namespace, name, types.UID(name)
	p.ResourceVersion, p.Status = strconv.FormatInt(s.rv.Add(1), 10), *s.status
	s.bytes.Add(int64(len(patch)))
	s.taken <- struct{}{}
	return nil
}

func (s *sink) Delete(context.Context, apiclient.Resource, string, string, metav1.DeleteOptions) error {
	return nil
}

// bench runs a Reporter with 100 pods.
func bench(b *testing.B, test func(s *sink, changed chan struct{}, looked chan struct{}, set func(*v1.PodStatus))) {
	b.Helper()
	const pods = 100
	s := &sink{status: running(), taken: make(chan struct{}, pods)}
	s.rv.Store(1000)
	var api []*v1.Pod
	for i := range pods {
		p := apiPod(fmt.Sprint("p", i))
		p.UID, p.ResourceVersion, p.Status = types.UID(p.Name), "1", *running()
		api = append(api, p)
	}
	entries := make(chan []pod.Entry, 1)
	list := func(status *v1.PodStatus) []pod.Entry {
		out := make([]pod.Entry, pods)
		for i := range out {
			own := *status
			out[i] = pod.Entry{Pod: api[i], Status: &own}
		}
		return out
	}
	now := list(running())
	changed, looked := make(chan struct{}, 1), make(chan struct{}, 1)
	r := statusmanager.New(statusmanager.Config{
		API: s, Trigger: wait.NewWakeup(), NodeName: "node", Changed: changed, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		List: func() []pod.Entry {
			select {
			case now = <-entries:
			default:
			}
			select {
			case looked <- struct{}{}:
			default:
			}
			return now
		},
		Done:    func(types.UID) bool { return false },
		NodeUID: func() types.UID { return "node-uid" },
	})
	r.SetPods(api)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = r.Run(ctx) // the context's cause
	}()
	<-looked
	test(s, changed, looked, func(status *v1.PodStatus) {
		s.status = status
		entries <- list(status)
		changed <- struct{}{}
	})
	cancel()
	<-ended
}

// BenchmarkLook measures a sync without differences.
func BenchmarkLook(b *testing.B) {
	bench(b, func(_ *sink, changed, looked chan struct{}, _ func(*v1.PodStatus)) {
		b.ReportAllocs()
		for b.Loop() {
			changed <- struct{}{}
			<-looked
		}
	})
}

// Benchmark100Statuses changes 100 pods at once.
func Benchmark100Statuses(b *testing.B) {
	bench(b, func(s *sink, _, _ chan struct{}, set func(*v1.PodStatus)) {
		b.ReportAllocs()
		n := 0
		for b.Loop() {
			n++
			set(restarted(n))
			for range 100 {
				<-s.taken
			}
		}
		b.ReportMetric(float64(s.bytes.Load())/float64(100*n), "bytes/patch")
	})
}
