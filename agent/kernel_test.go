package agent

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container/fake"
	"github.com/tinylet/tinylet/agent/node/nodeinfo/nodeinfotest"
	"github.com/tinylet/tinylet/net/nft"
)

// errNoTables is what the runtime passes on of the plugin on a kernel without
// nf_tables.
var errNoTables = fmt.Errorf("set up network of default/web: %w", &nft.Unsupported{What: "nf_tables", Err: unix.EPROTONOSUPPORT})

// TestKernelWithoutNFTables has a pod with a network of its own not start, and
// say why. A pod with hostNetwork runs.
func TestKernelWithoutNFTables(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		l.runtime.Inject("RunPodSandbox", fake.Fault{Err: errNoTables, Match: func(name string) bool { return strings.HasPrefix(name, "default/web") }})
		web, host := shell(t, "web", "Always", "sleep infinity"), shell(t, "host", "Always", "sleep infinity")
		host.Spec.HostNetwork = true
		l.want(web, host)
		l.start()
		l.settle(time.Minute)
		if got := l.status(host.UID).Phase; got != v1.PodRunning {
			t.Errorf("the pod with hostNetwork is %s", got)
		}
		if got := l.status(web.UID).Phase; got != v1.PodPending {
			t.Errorf("the pod without is %s", got)
		}
		said := false
		for _, e := range l.agent.events.Recent() {
			said = said || e.Pod.Name == web.Name && e.Reason == "FailedCreatePodSandBox" && strings.Contains(e.Message, "the kernel has no nf_tables: load it")
		}
		if !said {
			t.Errorf("no event says why: %+v", l.agent.events.Recent())
		}
	})
}

// TestNodeTellsOfItsKernel has the Ready condition name what keeps pods from
// their network, beside what the runtime says.
func TestNodeTellsOfItsKernel(t *testing.T) {
	a := everything(t, true)
	inputs := a.registration.inputs
	inputs.Problem = problems(inputs.Problem, errNoTables.Error)
	inputs.RuntimeHealthy = func(time.Time) error { return nil }
	changed := make(chan struct{}, 1)
	inputs.OnChange = func() { changed <- struct{}{} }
	inputs.Runtime = nodeinfotest.Runtime{Result: &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
		{Type: runtimeapi.RuntimeReady, Status: true}, {Type: runtimeapi.NetworkReady, Message: "cni plugin not initialized"},
	}}}}
	go func() { _ = inputs.Run(t.Context()) }()
	<-changed
	for _, c := range a.registration.registrar.Conditions(t.Context()) {
		if c.Type != v1.NodeReady {
			continue
		}
		if c.Status != v1.ConditionFalse || !strings.Contains(c.Message, "cni plugin not initialized") || !strings.Contains(c.Message, "modprobe -a nf_tables") {
			t.Errorf("Ready is %s: %s", c.Status, c.Message)
		}
		return
	}
	t.Error("there is no condition Ready")
}
