package agent

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/config/evictionapi"
	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/node/machine"
	"github.com/tinylet/tinylet/agent/node/nodestatus"
)

// Periods of asking the runtime how it is. The one for a runtime that is not
// ready is the kubelet's; the other one takes the place of the heartbeat.
const (
	askReady    = 50 * time.Second
	askNotReady = 5 * time.Second
	askLimit    = 10 * time.Second
	// askImages is how old the list of images may be: that of a report.
	askImages = 5 * time.Minute
)

// nodeInputs gathers what the Node object says. What does not change while
// the agent runs is read once; the runtime is asked by Run alone, so that
// reporting waits for nobody.
type nodeInputs struct {
	cfg     *config.Config
	runtime interface {
		container.RuntimeInfo
		ListImages(ctx context.Context, filter *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error)
	}
	facts *nodeFacts
	// healthy says how the runtime does by what was heard of it.
	healthy func(now time.Time) error
	heard   func() // the runtime has answered
	changed func() // what inputs answers may have changed
	moved   func() // the node's addresses have changed
	problem func() string
	// under is which pressures the node is under.
	under func() evictionapi.Conditions
	// shuttingDown says that the pods are being ended.
	shuttingDown func() bool

	machine  machine.Info
	capacity v1.ResourceList

	mu       sync.Mutex
	ips      []string // the addresses at the last check
	version  *runtimeapi.VersionResponse
	status   *runtimeapi.StatusResponse
	images   []*runtimeapi.Image
	imagesAt time.Time
}

// declaredFeatures are those of k8s.io/component-helpers/nodedeclaredfeatures
// that work here, by name.
var declaredFeatures = []string{
	"InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers", "RestartAllContainersOnContainerExits",
}

// newNodeInputs reads what does not change.
func newNodeInputs(cfg *config.Config, rt container.Runtime, facts *nodeFacts) *nodeInputs {
	return &nodeInputs{
		cfg: cfg, runtime: rt, facts: facts,
		machine:  machine.ReadInfo(machine.Roots{}),
		capacity: machine.Capacity(machine.Roots{Storage: cfg.Paths.Root}, cfg.Kubelet.MaxPods),
	}
}

// checkAddresses calls moved if the node's addresses are others than at the
// last check.
func (n *nodeInputs) checkAddresses() {
	ips := n.facts.hostIPs()
	n.mu.Lock()
	changed := !slices.Equal(n.ips, ips)
	n.ips = ips
	n.mu.Unlock()
	if changed {
		n.moved()
	}
}

// get is the node as it is now. It asks nobody and changes nothing.
func (n *nodeInputs) get(context.Context) *nodestatus.Inputs {
	in := &nodestatus.Inputs{
		Config: n.cfg, Now: time.Now(), Machine: n.machine, Capacity: n.capacity,
		HostIPs: interfaceAddresses(),
	}
	for _, text := range n.facts.hostIPs() {
		if ip, err := netip.ParseAddr(text); err == nil {
			in.DefaultIPs = append(in.DefaultIPs, ip)
		}
	}
	n.mu.Lock()
	in.RuntimeVersion, in.RuntimeStatus, in.Images = n.version, n.status, n.images
	n.mu.Unlock()
	switch {
	case in.RuntimeStatus == nil:
		in.Problems = append(in.Problems, nodestatus.ProblemRuntimeUnchecked)
	case n.healthy(in.Now) != nil:
		in.Problems = append(in.Problems, nodestatus.ProblemRuntimeDown)
	default:
		in.Problems = append(in.Problems, nodestatus.RuntimeProblems(in.RuntimeStatus.GetStatus())...)
	}
	if n.facts.slices() && !n.facts.systemd {
		in.Problems = append(in.Problems, nodestatus.ProblemNoSystemd)
	}
	if n.shuttingDown() {
		in.Problems = append(in.Problems, nodestatus.ProblemShutdown)
	}
	in.Pressures = n.under()
	in.Warning = n.problem()
	in.DeclaredFeatures = declaredFeatures
	return in
}

// interfaceAddresses are the host's.
func interfaceAddresses() []netip.Addr {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	var out []netip.Addr
	for _, a := range addresses {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, prefix.Addr())
		}
	}
	return out
}

// Run asks the runtime how it is until ctx ends: rarely, but often while it or
// its network is not ready.
func (n *nodeInputs) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
		}
		wait := askReady
		if !n.ask(ctx) {
			wait = askNotReady
		}
		timer.Reset(wait)
	}
}

// ask says whether the runtime is ready.
func (n *nodeInputs) ask(ctx context.Context) (ready bool) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	status, err := n.runtime.Status(ctx)
	if err != nil {
		return false // its heartbeat says so in the log
	}
	n.heard()
	_, _ = n.facts.ask(ctx) // once: that systemd is missing follows from it
	problems := nodestatus.RuntimeProblems(status.GetStatus())
	n.mu.Lock()
	news := n.status == nil || !slices.Equal(problems, nodestatus.RuntimeProblems(n.status.GetStatus()))
	n.status = status
	old := time.Since(n.imagesAt) > askImages
	n.mu.Unlock()
	if old {
		n.askRarely(ctx)
	}
	if news {
		n.changed()
	}
	return len(problems) == 0
}

// askRarely asks for what changes seldom; what is not answered stays.
func (n *nodeInputs) askRarely(ctx context.Context) {
	version, err := n.runtime.Version(ctx)
	if err != nil {
		return
	}
	images, err := n.runtime.ListImages(ctx, nil)
	if err != nil {
		return
	}
	if images == nil {
		images = []*runtimeapi.Image{} // there are none, which is known
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.version, n.images, n.imagesAt = version, images, time.Now()
}
