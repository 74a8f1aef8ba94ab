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

// Inputs is all that a node is made from. Nothing changes it.
type Inputs struct {
	// Config must be valid.
	Config *config.Config
	Now    time.Time

	Machine machine.Facts
	// Capacity is machine.Capacity's: what is missing there could not be read.
	Capacity v1.ResourceList

	// HostIPs are the addresses of the host's interfaces. A --node-ip that is
	// not among them is refused.
	HostIPs []netip.Addr
	// NameIPs are what the node's name resolves to, the best first; nil where
	// nobody asked.
	NameIPs []netip.Addr
	// DefaultIPs are the addresses from which the host speaks to the world,
	// at most one of each family.
	DefaultIPs []netip.Addr

	// What the container runtime told last; each is nil until it has.
	RuntimeVersion *runtimeapi.VersionResponse
	RuntimeStatus  *runtimeapi.StatusResponse
	// Images are in any order. An empty list that is not nil says that there
	// are none.
	Images []*runtimeapi.Image

	// DeclaredFeatures are the names in
	// k8s.io/component-helpers/nodedeclaredfeatures of what is implemented,
	// in any order. The scheduler sends pods that need one to nodes that
	// declare it, so a feature that is named wrongly breaks pods.
	DeclaredFeatures []string

	// Under says under which pressures the node is.
	Under evictionapi.Conditions
	// Problems are why the node is not ready, in the order in which the
	// kubelet names them: of the runtime, of the network, of storage, of a
	// shutdown. See RuntimeProblems.
	Problems []string
	// Warning is what the node lacks and is ready without, or "". It ends
	// the message of the condition Ready.
	Warning string
}
