package probe

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/agent/podworker/handler"
)

// instantExec is a runtime that answers at once.
type instantExec struct{}

func (instantExec) ExecSync(context.Context, string, []string, time.Duration) (stdout, stderr []byte, exitCode int32, err error) {
	return []byte("ok\n"), nil, 0, nil
}

// serveHealthz is a server as containers have it.
func serveHealthz(b *testing.B) int {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }), ReadHeaderTimeout: time.Minute}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	b.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return l.Addr().(*net.TCPAddr).Port
}

// tenPods are pods with an exec and an http probe each.
func tenPods(port int) (pods []*v1.Pod, seen []*container.Observed) {
	for i := range 10 {
		p := podOf(func(c *v1.Container) {
			c.LivenessProbe = execProbe("cat")
			c.ReadinessProbe = execProbe("")
			c.ReadinessProbe.ProbeHandler = v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Port: intstr.FromInt(port), Path: "/healthz"}}
		})
		p.UID = types.UID("uid-" + strconv.Itoa(i))
		o := running(time.Now(), "web", fmt.Sprintf("c%d", i))
		o.Sandboxes[0].IPs = []string{"127.0.0.1"}
		pods, seen = append(pods, p), append(seen, o)
	}
	return pods, seen
}

// BenchmarkRound is what ten pods with an exec and an http probe each cost
// every 10 s, the http servers' share with it: 20 probes.
func BenchmarkRound(b *testing.B) {
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	m := New(Config{Actions: handler.New(instantExec{}), Events: event.NewRecorder(log), Log: log, ResultChanged: func(types.UID) {}})
	pods, seen := tenPods(serveHealthz(b))
	for i := range pods {
		m.Observe(pods[i], &container.Observed{})
		m.Observe(pods[i], seen[i])
	}
	used := func() time.Duration {
		var r syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
			b.Fatal(err)
		}
		return time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	b.ReportAllocs()
	before, rounds := used(), 0
	for b.Loop() {
		for _, c := range m.queue {
			c.due = time.Now()
		}
		var flights sync.WaitGroup
		m.startDue(b.Context(), &flights)
		flights.Wait()
		rounds++
	}
	b.ReportMetric(float64(used()-before)/float64(rounds), "cpu-ns/op")
	if n := len(m.queue); n != 20 || !m.Results("uid-0")["c0"].Ready {
		b.Fatalf("%d checks wait, results %v", n, m.Results("uid-0"))
	}
}

// BenchmarkObserve measures an observation of a pod without changes.
func BenchmarkObserve(b *testing.B) {
	m := New(Config{Actions: fakeActions{}})
	pods, seen := tenPods(80)
	b.ReportAllocs()
	for b.Loop() {
		m.Observe(pods[0], seen[0])
		m.Results(pods[0].UID)
	}
}

// TestNoAllocation checks that Observe of a pod without changes, and Results,
// allocate nothing.
func TestNoAllocation(t *testing.T) {
	m := New(Config{Actions: fakeActions{}})
	pods, seen := tenPods(80)
	m.Observe(pods[0], seen[0])
	m.Results(pods[0].UID)
	if n := testing.AllocsPerRun(100, func() {
		m.Observe(pods[0], seen[0])
		m.Results(pods[0].UID)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
