package registration

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/apiserver/apiservertest"
	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/node/machine"
	"github.com/tinylet/tinylet/agent/node/nodestatus"
	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/agent/wait"
)

const name = "gateway-7"

var errLink = errors.New("no route to host")

// api is an API server whose faults may begin while a request is on its way.
type api struct {
	*apiservertest.Server

	mu       sync.Mutex
	fail     error // of every request while set
	lost     bool  // the request is done, and its answer is lost
	noCreate error // of requests to create a node
	noDelete error // of requests to delete

	get         atomic.Int64 // ns that the answer to a read of the node takes
	there, back atomic.Int64 // ns that renewals of the lease take to the server, and their answers
}

func newAPI() *api {
	a := &api{Server: apiservertest.New()}
	a.SetFaults(apiservertest.Faults{Before: a.before, After: a.after})
	return a
}

func onItsWay(c apiservertest.Call, ns *atomic.Int64) {
	if c.Resource == apiclient.Leases && c.Verb == "patch" {
		time.Sleep(time.Duration(ns.Load()))
	}
}

func (a *api) before(ctx context.Context, c apiservertest.Call) error {
	onItsWay(c, &a.there)
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case a.fail == nil && c.Verb == "delete":
		return a.noDelete
	case a.fail == nil && c.Verb == "create" && c.Resource == apiclient.Nodes:
		return a.noCreate
	}
	return a.fail
}

func (a *api) after(_ context.Context, c apiservertest.Call) error {
	onItsWay(c, &a.back)
	if c.Resource == apiclient.Nodes && c.Verb == "get" {
		time.Sleep(time.Duration(a.get.Load()))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.lost {
		return errLink
	}
	return nil
}

func (a *api) node() *v1.Node { return apiservertest.Stored[*v1.Node](a.Server, "", name) }

func (a *api) lease() *coordinationv1.Lease {
	return apiservertest.Stored[*coordinationv1.Lease](a.Server, v1.NamespaceNodeLease, name)
}

// unknown sets the conditions to unknown, as the node controller does while no lease is
// renewed.
func (a *api) unknown() {
	apiservertest.Update(a.Server, "", name, func(n *v1.Node) {
		for i := range n.Status.Conditions {
			n.Status.Conditions[i].Status = v1.ConditionUnknown
		}
	})
}

// lab is a registrar with a fake API server.
type lab struct {
	*testing.T
	api    *api
	config Config
	r      *Registrar
	events *event.Recorder

	mu     sync.Mutex
	inputs nodestatus.Inputs
}

func inputs() nodestatus.Inputs {
	kubelet, own := config.Default()
	return nodestatus.Inputs{
		Config:  &config.Config{Kubelet: kubelet, Tinylet: own, NodeName: name},
		Machine: machine.Info{MachineID: "8f0e7a3c1b2d4e5f90a1b2c3d4e5f607", BootID: "one"},
		Capacity: v1.ResourceList{
			"cpu": resource.MustParse("4"), "memory": resource.MustParse("498692Ki"),
			"ephemeral-storage": resource.MustParse("1000Mi"), "pods": resource.MustParse("110"),
		},
		HostIPs:        []netip.Addr{netip.MustParseAddr("192.168.1.20")},
		DefaultIPs:     []netip.Addr{netip.MustParseAddr("192.168.1.20")},
		RuntimeVersion: &runtimeapi.VersionResponse{RuntimeName: "containerd", RuntimeVersion: "v2.4.2"},
		RuntimeStatus:  &runtimeapi.StatusResponse{},
		Images:         []*runtimeapi.Image{},
	}
}

// run runs test with a running registrar in a bubble of virtual time.
func run(t *testing.T, prepare func(*lab), test func(*lab)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &lab{T: t, api: newAPI(), events: event.NewRecorder(slog.New(slog.DiscardHandler)), inputs: inputs()}
		l.config = Config{
			API: l.api, NodeName: name, Register: true, Trigger: wait.NewWakeup(),
			BeforeUpdate: func() {}, HasKubeletVolumes: func() (bool, error) { return true, nil },
			Inputs: func(context.Context) *nodestatus.Inputs {
				l.mu.Lock()
				defer l.mu.Unlock()
				in := l.inputs
				in.Now = time.Now()
				return &in
			},
			StatusUpdateInterval: 10 * time.Second, StatusReportInterval: 5 * time.Minute, LeaseDuration: 40 * time.Second,
			Events: l.events, Log: slog.New(slog.DiscardHandler),
		}
		if prepare != nil {
			prepare(l)
		}
		l.config.Object = NewObject(l.config.API, name, func(*v1.Node) {})
		l.r = New(l.config)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- l.r.Run(ctx) }()
		test(l)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v, want its context's end", err)
		}
	})
}

func (l *lab) change(f func(*nodestatus.Inputs)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(&l.inputs)
}

// calls waits for d and returns the requests in that time.
func (l *lab) calls(d time.Duration) map[string]int {
	before := len(l.api.Calls())
	time.Sleep(d)
	synctest.Wait()
	n := make(map[string]int)
	for _, c := range l.api.Calls()[before:] {
		n[strings.TrimSuffix(c.Verb+" "+c.Resource.String()+"/"+c.Subresource, "/")]++
	}
	return n
}

func (l *lab) ready() v1.ConditionStatus {
	l.Helper()
	synctest.Wait()
	n := l.api.node()
	if n == nil {
		l.Fatal("there is no node")
	}
	for _, c := range n.Status.Conditions {
		if c.Type == v1.NodeReady {
			return c.Status
		}
	}
	return ""
}

func (l *lab) set(err error, lost bool) {
	l.api.mu.Lock()
	defer l.api.mu.Unlock()
	l.api.fail, l.api.lost = err, lost
}

func (l *lab) told(reason string) int {
	n := 0
	for _, e := range l.events.Recent() {
		if e.Reason == reason {
			n += e.Count
		}
	}
	return n
}

func TestRegistersAndStaysQuiet(t *testing.T) {
	run(t, nil, func(l *lab) {
		if n := l.calls(time.Second); n["create nodes"] != 1 || n["create leases"] != 1 || n["get nodes"] > 1 {
			t.Errorf("requests at the start %v", n)
		}
		if l.ready() != v1.ConditionTrue || l.r.UID() != l.api.node().UID {
			t.Errorf("ready %s, uid %q", l.ready(), l.r.UID())
		}
		if owner := l.api.lease().OwnerReferences; len(owner) != 1 || owner[0].UID != l.api.node().UID {
			t.Errorf("owner of the lease %v", owner)
		}
		n := l.calls(time.Hour)
		if renewals := n["patch leases"]; renewals < 345 || renewals > 375 {
			t.Errorf("%d renewals in an hour, want one each 10 s", renewals)
		}
		if reports := n["patch nodes/status"]; reports < 11 || reports > 13 {
			t.Errorf("%d reports in an hour, want one each 5 min", reports)
		}
		if others := len(n); others != 2 {
			t.Errorf("requests of an hour: %v", n)
		}
		if l.told("Starting") != 1 || l.told("NodeReady") > 1 {
			t.Errorf("events %v", l.events.Recent())
		}
	})
}

func TestRegisteredAlready(t *testing.T) {
	run(t, func(l *lab) {
		n := &v1.Node{}
		n.Name, n.UID = name, "before"
		n.Labels = map[string]string{"mine": "yes", v1.LabelHostname: "wrong"}
		n.Spec.Taints = []v1.Taint{{Key: "mine"}}
		l.api.Put(n)
	}, func(l *lab) {
		l.calls(time.Second)
		got := l.api.node()
		if l.r.UID() != "before" || got.Labels["mine"] != "yes" || got.Labels[v1.LabelHostname] != name || len(got.Spec.Taints) != 1 || l.ready() != v1.ConditionTrue {
			t.Errorf("node %+v", got)
		}
	})
}

// A Ready node stays Ready over a restart of the agent, however late the runtime reports
// its status.
func TestRestartedAgentKeepsNodeReady(t *testing.T) {
	var known chan struct{}
	run(t, func(l *lab) {
		known = make(chan struct{})
		n := &v1.Node{}
		n.Name, n.UID = name, "before"
		n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
		l.api.Put(n)
		l.config.InputsKnown = known
		l.inputs.Problems = []string{nodestatus.ProblemRuntimeUnchecked}
	}, func(l *lab) {
		n := l.calls(9 * time.Second)
		if l.ready() != v1.ConditionTrue || n["patch nodes/status"] > 1 || n["create leases"] != 1 {
			t.Errorf("before the runtime has reported its status: ready %s, requests %v", l.ready(), n)
		}
		l.change(func(in *nodestatus.Inputs) { in.Problems = nil })
		close(known)
		if n := l.calls(time.Second); l.ready() != v1.ConditionTrue || n["patch nodes/status"] != 1 {
			t.Errorf("then: ready %s, requests %v", l.ready(), n)
		}
		if l.told("NodeNotReady") != 0 {
			t.Errorf("events %v", l.events.Recent())
		}
	})
}

// The node was not registered, although it existed.
func TestRegisteredAlreadyAndNotAllowedToCreate(t *testing.T) {
	run(t, func(l *lab) {
		l.api.noCreate = apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, name, errors.New("not allowed"))
	}, func(l *lab) {
		time.Sleep(time.Minute)
		if l.api.node() != nil || l.r.UID() != "" {
			t.Fatal("the node was created")
		}
		if err := l.r.tryRegister(t.Context()); !apierrors.IsForbidden(err) {
			t.Errorf("without a node: %v", err)
		}
		l.api.Put(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "theirs"}})
		time.Sleep(time.Minute)
		if l.ready() != v1.ConditionTrue || l.r.UID() != "theirs" || l.api.lease() == nil {
			t.Errorf("ready %s, uid %q, lease %v", l.ready(), l.r.UID(), l.api.lease())
		}
	})
}

func TestSomebodyElseRegisters(t *testing.T) {
	run(t, func(l *lab) { l.config.Register = false }, func(l *lab) {
		l.calls(time.Minute)
		if l.api.node() != nil {
			t.Fatal("the node was created")
		}
		l.api.Put(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "theirs"}})
		l.calls(time.Minute)
		if l.ready() != v1.ConditionTrue {
			t.Error("the node is not reported")
		}
	})
}

func TestChangesAreReportedAtOnce(t *testing.T) {
	run(t, nil, func(l *lab) {
		time.Sleep(time.Minute)
		l.change(func(in *nodestatus.Inputs) { in.Problems = []string{nodestatus.ProblemRuntimeDown} })
		l.r.cfg.Trigger.Set()
		if l.ready() != v1.ConditionFalse {
			t.Error("a change that was announced is not reported at once")
		}
		l.change(func(in *nodestatus.Inputs) { in.Problems = nil })
		time.Sleep(11 * time.Second)
		if l.ready() != v1.ConditionTrue {
			t.Error("a change that was not announced is not reported by the next look")
		}
		if l.told("NodeNotReady") != 1 || l.told("NodeReady") == 0 {
			t.Errorf("events %v", l.events.Recent())
		}
	})
}

func TestOutage(t *testing.T) {
	run(t, func(l *lab) { l.set(errLink, false) }, func(l *lab) {
		if n := l.calls(10 * time.Minute); n["create nodes"] < 15 || n["create nodes"] > 60 || n["patch leases"] != 0 {
			t.Errorf("requests while the server is away %v", n)
		}
		l.set(nil, false)
		time.Sleep(31 * time.Second)
		if l.ready() != v1.ConditionTrue {
			t.Error("not registered once the server is there")
		}
		l.set(errLink, false)
		time.Sleep(time.Hour)
		l.api.unknown()
		l.set(nil, false)
		time.Sleep(12 * time.Second)
		if l.ready() != v1.ConditionTrue {
			t.Error("the node stays unknown after the outage")
		}
	})
}

// BeforeUpdate was not called while reports failed, so an outage stopped the periodic
// eviction check.
func TestBeforeUpdateInAnOutage(t *testing.T) {
	var n atomic.Int64
	run(t, func(l *lab) { l.config.BeforeUpdate = func() { n.Add(1) } }, func(l *lab) {
		time.Sleep(time.Minute)
		l.set(errLink, false)
		l.change(func(in *nodestatus.Inputs) { in.Problems = []string{nodestatus.ProblemRuntimeDown} })
		time.Sleep(time.Minute) // a report has failed
		before := n.Load()
		time.Sleep(5 * time.Minute)
		if calls := n.Load() - before; calls < 5 {
			t.Errorf("%d calls in 5 min of an outage", calls)
		}
	})
}

// The node controller sets the node to unknown when no lease arrived for 40 s. The
// local comparison detects no difference then.
func TestLeaseLateForTheController(t *testing.T) {
	run(t, nil, func(l *lab) {
		time.Sleep(time.Second)
		l.set(errLink, false)
		time.Sleep(time.Minute)
		l.api.unknown()
		l.set(nil, false)
		time.Sleep(11 * time.Second)
		if l.ready() != v1.ConditionTrue {
			t.Error("the node stays unknown until the next report")
		}
	})
}

// Changes by others arrive with the response to the next report.
func TestChangesOfOthers(t *testing.T) {
	run(t, nil, func(l *lab) {
		time.Sleep(time.Minute)
		l.api.unknown()
		apiservertest.Update(l.api.Server, "", name, func(n *v1.Node) { n.Spec.Taints = []v1.Taint{{Key: "theirs"}} })
		time.Sleep(6 * time.Minute)
		if l.ready() != v1.ConditionTrue || len(l.r.Node().Spec.Taints) != 1 {
			t.Errorf("ready %s, taints %v", l.ready(), l.r.Node().Spec.Taints)
		}
	})
}

// The report never changes the spec, so a comparison of the nodes before and after it
// recorded no event.
func TestCordon(t *testing.T) {
	run(t, nil, func(l *lab) {
		for _, cordoned := range []bool{true, false} {
			time.Sleep(time.Minute)
			apiservertest.Update(l.api.Server, "", name, func(n *v1.Node) { n.Spec.Unschedulable = cordoned })
			time.Sleep(14 * time.Minute)
			if l.told("NodeNotSchedulable") != 1 || (l.told("NodeSchedulable") == 1) == cordoned {
				t.Errorf("cordoned %t: events %v", cordoned, l.events.Recent())
			}
		}
	})
}

// A node that was deleted and created again with the same name is read and
// reported.
func TestNodeReplaced(t *testing.T) {
	run(t, nil, func(l *lab) {
		time.Sleep(time.Minute)
		l.api.Put(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "another"}})
		time.Sleep(7 * time.Minute)
		if l.ready() != v1.ConditionTrue || l.r.UID() != "another" {
			t.Errorf("ready %s, uid %q", l.ready(), l.r.UID())
		}
	})
}

// The server handled one renewal early and the next one late, although the
// responses arrived in time.
func TestLeaseWhoseAnswerWasLate(t *testing.T) {
	run(t, metered, func(l *lab) {
		time.Sleep(time.Second)
		l.api.back.Store(int64(20 * time.Second))
		time.Sleep(30 * time.Second) // a renewal is done and not answered
		l.api.back.Store(0)
		l.api.there.Store(int64(10 * time.Second))
		time.Sleep(42 * time.Second) // the next one is on its way
		l.api.unknown()
		l.api.there.Store(0)
		time.Sleep(30 * time.Second)
		if l.ready() != v1.ConditionTrue {
			t.Error("the node stays unknown until the next report")
		}
	})
}

// metered sets the intervals of a metered link.
func metered(l *lab) {
	l.config.StatusReportInterval, l.config.LeaseDuration, l.config.RenewInterval = 15*time.Minute, 50*time.Second, 25*time.Second
}

func TestMeteredStaysQuieter(t *testing.T) {
	run(t, metered, func(l *lab) {
		l.calls(time.Second)
		if seconds := l.api.lease().Spec.LeaseDurationSeconds; seconds == nil || *seconds != 50 {
			t.Errorf("the lease lasts %v s", seconds)
		}
		n := l.calls(time.Hour)
		if renewals := n["patch leases"]; renewals < 138 || renewals > 150 {
			t.Errorf("%d renewals in an hour, want one each 25 s", renewals)
		}
		if reports := n["patch nodes/status"]; reports < 3 || reports > 5 {
			t.Errorf("%d reports in an hour, want one each 15 min", reports)
		}
		if others := len(n); others != 2 {
			t.Errorf("requests of an hour: %v", n)
		}
	})
}

// One renewal may be lost without the node becoming unknown.
func TestMeteredSurvivesALostRenewal(t *testing.T) {
	run(t, metered, func(l *lab) {
		time.Sleep(time.Second)
		renewed := func() time.Time { return l.api.lease().Spec.RenewTime.Time }
		for range 20 {
			last := renewed()
			for renewed().Equal(last) {
				time.Sleep(time.Second / 10)
			}
			last = renewed()
			time.Sleep(20 * time.Second)
			l.api.there.Store(int64(10 * time.Second)) // until the connection breaks off
			l.set(errLink, false)
			for range 2 { // until the attempt has failed
				time.Sleep(8 * time.Second)
			}
			l.api.there.Store(0)
			l.set(nil, false)
			for renewed().Equal(last) {
				time.Sleep(time.Second / 10)
			}
			if gap := renewed().Sub(last); gap < 30*time.Second || gap > 45*time.Second {
				t.Errorf("renewed after %v", gap)
			}
		}
	})
}

func TestLostAnswers(t *testing.T) {
	run(t, func(l *lab) { l.set(nil, true) }, func(l *lab) {
		time.Sleep(time.Minute)
		l.set(nil, false)
		time.Sleep(31 * time.Second)
		if l.ready() != v1.ConditionTrue || l.r.UID() != l.api.node().UID {
			t.Errorf("ready %s, uid %q", l.ready(), l.r.UID())
		}
	})
}

func TestLeaseDeletedComesBack(t *testing.T) {
	run(t, nil, func(l *lab) {
		time.Sleep(time.Minute)
		l.api.Remove(apiclient.Leases, v1.NamespaceNodeLease, name)
		time.Sleep(25 * time.Second)
		if l.api.lease() == nil {
			t.Error("no lease")
		}
	})
}

func TestNodeDeletedStaysDeleted(t *testing.T) {
	run(t, nil, func(l *lab) {
		time.Sleep(time.Minute)
		l.api.Remove(apiclient.Nodes, "", name)
		if n := l.calls(time.Hour); n["create nodes"] != 0 || n["get nodes"] > 250 {
			t.Errorf("requests after the node was deleted: %v", n)
		}
	})
}

// The answer to a read replaced the newer one to a report that overtook it.
func TestReadIsOvertaken(t *testing.T) {
	run(t, nil, func(l *lab) {
		time.Sleep(time.Minute)
		l.api.get.Store(int64(15 * time.Second))
		read := make(chan error, 1)
		go func() { read <- l.r.Refresh(l.Context()) }()
		time.Sleep(time.Second)
		apiservertest.Update(l.api.Server, "", name, func(n *v1.Node) { n.Spec.Unschedulable = true })
		l.change(func(in *nodestatus.Inputs) { in.Problems = []string{nodestatus.ProblemRuntimeDown} })
		l.r.cfg.Trigger.Set()
		if err := <-read; err != nil || !l.r.Node().Spec.Unschedulable {
			t.Errorf("error %v, unschedulable %t", err, l.r.Node().Spec.Unschedulable)
		}
		// A server that was restored from a backup has older versions.
		before := l.r.Node().DeepCopy()
		before.ResourceVersion, before.Spec.Unschedulable = "1", false
		l.r.store(l.r.Node(), before)
		if l.r.Node().Spec.Unschedulable {
			t.Error("an answer that none overtook was dropped")
		}
	})
}

// TestRecovery: another component receives the first response after an outage.
func TestRecovery(t *testing.T) {
	back := make(chan struct{})
	run(t, func(l *lab) {
		back = make(chan struct{}) // of the bubble
		l.config.LeaseDuration = 10 * time.Minute
		l.config.Recovered = func() <-chan struct{} {
			select {
			case <-back:
				return nil
			default:
				return back
			}
		}
	}, func(l *lab) {
		time.Sleep(time.Minute)
		l.set(errLink, false)
		l.change(func(in *nodestatus.Inputs) { in.Problems = []string{nodestatus.ProblemRuntimeDown} })
		time.Sleep(30 * time.Minute)
		l.set(nil, false)
		close(back)
		calls := l.calls(time.Second)
		if calls["patch leases"] != 1 || calls["patch nodes/status"] == 0 {
			l.Errorf("requests a second after the outage: %v", calls)
		}
		// Nothing of it is left to make haste.
		if calls := l.calls(30 * time.Second); calls["patch leases"] != 0 || calls["get nodes"] != 0 {
			l.Errorf("requests later: %v", calls)
		}
	})
}

func TestRegistersWithARecovery(t *testing.T) {
	var back chan struct{}
	run(t, func(l *lab) {
		back = make(chan struct{})
		l.api.fail = errLink
		l.config.Recovered = func() <-chan struct{} { return back }
	}, func(l *lab) {
		time.Sleep(time.Hour)
		l.set(nil, false)
		close(back)
		if calls := l.calls(time.Second); calls["create nodes"] != 1 {
			l.Errorf("requests a second after the outage: %v", calls)
		}
	})
}
