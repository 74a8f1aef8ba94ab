package nodestatus

import (
	"net/netip"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/config/evictionapi"
	"github.com/tinylet/tinylet/agent/node/machine"
)

// Inputs has all values that a Node is computed from. It is never modified.
type Inputs struct {
	// Config must be valid.
	Config *config.Config
	Now    time.Time

	Machine machine.Info
	// Capacity is from machine.Capacity. What is missing could not be read.
	Capacity v1.ResourceList

	// HostIPs are the addresses of the host's interfaces. A --node-ip that is not
	// among them is rejected.
	HostIPs []netip.Addr
	// DefaultIPs are the source addresses of the default routes, at most one of
	// each family.
	DefaultIPs []netip.Addr

	// RuntimeVersion, RuntimeStatus and Images are the container runtime's last
	// answers, each nil until the first one.
	RuntimeVersion *runtimeapi.VersionResponse
	RuntimeStatus  *runtimeapi.StatusResponse
	// Images are in any order. An empty list that is not nil means that there are
	// none.
	Images []*runtimeapi.Image

	// DeclaredFeatures are the names of implemented features in
	// k8s.io/component-helpers/nodedeclaredfeatures, in any order. The scheduler
	// sends pods that need a feature to nodes that declare it, so a wrong name
	// breaks pods.
	DeclaredFeatures []string

	Pressures evictionapi.Conditions
	// Problems are the reasons why the node is not ready, in the order of the kubelet:
	// of the runtime, the network, the storage, a shutdown. See RuntimeProblems.
	Problems []string
	// Warning is a problem that does not make the node unready, or "". It is appended to
	// the message of the condition Ready.
	Warning string
}
