package registration

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
	"github.com/tinylet/tinylet/agent/node/nodeinfo"
	"github.com/tinylet/tinylet/agent/node/nodestatus"
	"github.com/tinylet/tinylet/agent/wait"
)

// Intervals of the requests for the runtime's status. While the runtime is not ready, they
// grow from firstNotReadyInterval to the kubelet's interval.
const (
	readyInterval         = 50 * time.Second
	firstNotReadyInterval = 500 * time.Millisecond
	notReadyInterval      = 5 * time.Second
	statusTimeout         = 10 * time.Second
	// imagesInterval is the age from which on the next request also reads the version and
	// the images: the default of nodeStatusReportFrequency.
	imagesInterval = 5 * time.Minute
)

// CollectorConfig configures a Collector. Its functions must not block. They may be replaced
// before the first call of Run or Get.
type CollectorConfig struct {
	Config  *config.Config
	Runtime interface {
		container.RuntimeInfo
		ListImages(ctx context.Context, filter *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error)
	}
	Node *nodeinfo.Info
	// RuntimeHealthy returns an error if the runtime has not responded lately.
	RuntimeHealthy func(now time.Time) error
	// RecordResponse is called when the runtime has responded.
	RecordResponse func()
	// OnChange is called when the result of Get may have changed.
	OnChange func()
	// OnNetworkReady is called when NetworkProblem has become "".
	OnNetworkReady func()
	// Trigger triggers a request for the runtime's status. If the runtime is not ready, the
	// interval starts again with firstNotReadyInterval. The Collector is the only receiver.
	Trigger wait.Wakeup
	// Problem returns what the operator must do, or "".
	Problem func() string
	// Pressures returns the node's pressure conditions.
	Pressures func() evictionapi.Conditions
	// ShuttingDown reports whether a graceful shutdown is in progress.
	ShuttingDown func() bool
}

// Collector collects the inputs of the Node status. Only Run calls the runtime, so Get does
// not block.
type Collector struct {
	CollectorConfig

	machine  machine.Info
	capacity v1.ResourceList
	asked    chan struct{} // closed after the first request for the runtime's status

	mu       sync.Mutex
	version  *runtimeapi.VersionResponse
	status   *runtimeapi.StatusResponse
	images   []*runtimeapi.Image
	imagesAt time.Time
}

// declaredFeatures are the names of the features of
// k8s.io/component-helpers/nodedeclaredfeatures that the node supports.
var declaredFeatures = []string{
	"InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers", "RestartAllContainersOnContainerExits",
}

// NewCollector reads the inputs that do not change while the agent runs.
func NewCollector(c CollectorConfig) *Collector {
	return &Collector{
		CollectorConfig: c,
		machine:         machine.ReadInfo(machine.Roots{}),
		capacity:        machine.Capacity(machine.Roots{Storage: c.Config.Paths.Root}, c.Config.Kubelet.MaxPods, c.Config.Kubelet.PodsPerCore),
		asked:           make(chan struct{}),
	}
}

// Asked returns a channel that is closed when the runtime has reported its status, or has
// failed to, for the first time. Run requests it at once, and waits for it at most 10 s.
func (n *Collector) Asked() <-chan struct{} { return n.asked }

// Get returns the current inputs. It does not block and has no side effects.
func (n *Collector) Get(context.Context) *nodestatus.Inputs {
	in := &nodestatus.Inputs{
		Config: n.Config, Now: time.Now(), Machine: n.machine, Capacity: n.capacity,
		HostIPs: interfaceAddresses(), Pressures: n.Pressures(), Warning: n.Problem(), DeclaredFeatures: declaredFeatures,
	}
	for _, text := range n.Node.HostIPs() {
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
	case n.RuntimeHealthy(in.Now) != nil:
		in.Problems = append(in.Problems, nodestatus.ProblemRuntimeDown)
	default:
		in.Problems = append(in.Problems, nodestatus.RuntimeProblems(in.RuntimeStatus.GetStatus())...)
	}
	if n.Node.SystemdMissing() {
		in.Problems = append(in.Problems, nodestatus.ProblemNoSystemd)
	}
	if n.ShuttingDown() {
		in.Problems = append(in.Problems, nodestatus.ProblemShutdown)
	}
	return in
}

// interfaceAddresses returns the addresses of all interfaces of the host.
func interfaceAddresses() []netip.Addr {
	var out []netip.Addr
	addresses, _ := net.InterfaceAddrs() // none on an error
	for _, a := range addresses {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, prefix.Addr())
		}
	}
	return out
}

// NetworkProblem returns why the runtime cannot set up the network of a pod. It returns ""
// if the network is ready, and until that is known. It does not block.
func (n *Collector) NetworkProblem() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return nodestatus.NetworkProblem(n.status.GetStatus())
}

// Run requests the runtime's status until ctx ends: each readyInterval, and more often while
// the runtime or its network is not ready. It returns the cause of ctx.
func (n *Collector) Run(ctx context.Context) error {
	backoff := wait.Backoff{First: firstNotReadyInterval, Max: notReadyInterval}
	for {
		interval := readyInterval
		if n.readStatus(ctx) {
			backoff.Reset()
		} else {
			interval = backoff.Next()
		}
		select {
		case <-n.asked:
		default:
			close(n.asked)
		}
		timer := time.NewTimer(interval)
		select {
		case <-ctx.Done():
		case <-n.Trigger:
			backoff.Reset()
		case <-timer.C:
		}
		timer.Stop()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// readStatus requests the status, and reports whether the runtime and its network are ready.
func (n *Collector) readStatus(ctx context.Context) (ready bool) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	status, err := n.Runtime.Status(ctx)
	if err != nil {
		return false // the PLEG logs it
	}
	n.RecordResponse()
	_, _ = n.Node.Refresh(ctx) // once: SystemdMissing needs it
	problems := nodestatus.RuntimeProblems(status.GetStatus())
	n.mu.Lock()
	former := n.status.GetStatus()
	changed := n.status == nil || !slices.Equal(problems, nodestatus.RuntimeProblems(former))
	n.status = status
	old := time.Since(n.imagesAt) > imagesInterval
	n.mu.Unlock()
	if old {
		n.readImages(ctx)
	}
	if changed {
		n.OnChange()
	}
	if nodestatus.NetworkProblem(former) != "" && nodestatus.NetworkProblem(status.GetStatus()) == "" {
		n.OnNetworkReady()
	}
	return len(problems) == 0
}

// readImages requests the version and the images. If a request fails, the former values
// remain.
func (n *Collector) readImages(ctx context.Context) {
	version, err := n.Runtime.Version(ctx)
	if err != nil {
		return
	}
	images, err := n.Runtime.ListImages(ctx, nil)
	if err != nil {
		return
	}
	if images == nil {
		images = []*runtimeapi.Image{} // known to be empty
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.version, n.images, n.imagesAt = version, images, time.Now()
}
