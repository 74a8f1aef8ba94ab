package registration

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/config/evictionapi"
	"github.com/tinylet/tinylet/agent/node/nodeinfo/nodeinfotest"
	"github.com/tinylet/tinylet/agent/wait"
)

// networkRuntime is a runtime whose network may become ready.
type networkRuntime struct {
	nodeinfotest.Runtime

	mu    sync.Mutex
	ready bool
	calls int
}

func (r *networkRuntime) Status(context.Context) (*runtimeapi.StatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	network := &runtimeapi.RuntimeCondition{Type: runtimeapi.NetworkReady, Status: r.ready}
	if !r.ready {
		network.Reason, network.Message = "NetworkPluginNotReady", "cni plugin not initialized"
	}
	return &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
		{Type: runtimeapi.RuntimeReady, Status: true}, network,
	}}}, nil
}

// set sets whether the network is ready, and returns the number of calls so far.
func (r *networkRuntime) set(ready bool) (calls int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ready = ready
	return r.calls
}

// TestNetworkProblem has the network of the runtime become ready, once after a trigger and
// once without, and fail in between.
func TestNetworkProblem(t *testing.T) {
	cfg := nodeinfotest.Config(t)
	synctest.Test(t, func(t *testing.T) {
		rt, ready := new(networkRuntime), 0
		n := NewCollector(CollectorConfig{
			Config: cfg, Runtime: rt, Node: nodeinfotest.New(t, cfg, ""), Trigger: wait.NewWakeup(),
			RuntimeHealthy: func(time.Time) error { return nil }, RecordResponse: func() {},
			OnChange: func() {}, OnNetworkReady: func() { ready++ },
			Problem: func() string { return "" }, ShuttingDown: func() bool { return false },
			Pressures: func() evictionapi.Conditions { return evictionapi.Conditions{} },
		})
		if got := n.NetworkProblem(); got != "" {
			t.Errorf("before the first answer: %q", got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { _ = n.Run(ctx); close(done) }()
		defer func() { cancel(); <-done }()
		expect := func(step, problem string, times int) {
			t.Helper()
			synctest.Wait()
			if got := n.NetworkProblem(); !strings.Contains(got, problem) || (problem == "") != (got == "") || ready != times {
				t.Errorf("%s: problem %q, OnNetworkReady was called %d times", step, got, ready)
			}
		}
		time.Sleep(time.Minute)
		expect("no network", "NetworkReady=false reason:NetworkPluginNotReady message:cni plugin not initialized", 0)
		if calls := rt.set(true); calls < 10 || calls > 30 {
			t.Errorf("%d requests in a minute", calls)
		}
		n.Trigger.Set()
		expect("ready, triggered", "", 1)
		before := rt.set(false)
		time.Sleep(readyInterval)
		expect("fails", "not initialized", 1)
		rt.set(true)
		time.Sleep(notReadyInterval)
		expect("ready, not triggered", "", 2)
		time.Sleep(time.Hour)
		if calls := rt.set(true) - before; calls > 85 {
			t.Errorf("%d requests in an hour without a problem", calls)
		}
	})
}

// failingRuntime does not report its status.
type failingRuntime struct{ nodeinfotest.Runtime }

func (failingRuntime) Status(context.Context) (*runtimeapi.StatusResponse, error) {
	time.Sleep(time.Second)
	return nil, errors.New("no such file or directory")
}

// The first report does not wait for a runtime that is not there.
func TestAskedWithoutRuntime(t *testing.T) {
	cfg := nodeinfotest.Config(t)
	synctest.Test(t, func(t *testing.T) {
		n := NewCollector(CollectorConfig{
			Config: cfg, Runtime: failingRuntime{}, Node: nodeinfotest.New(t, cfg, ""), Trigger: wait.NewWakeup(),
		})
		start := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = n.Run(ctx) }()
		<-n.Asked()
		if got := time.Since(start); got != time.Second {
			t.Errorf("asked after %v", got)
		}
		time.Sleep(time.Minute) // more requests
		cancel()
		<-done
	})
}
