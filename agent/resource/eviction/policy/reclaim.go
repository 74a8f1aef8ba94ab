package policy

import "github.com/tinylet/tinylet/agent/config/evictionapi"

// Reclaim is what the node can give back before a pod has to go.
type Reclaim uint8

const (
	// DeadContainers removes containers that do not run, those of pods that
	// have ended and are not deleted yet as well, if nobody needs them to know
	// what has run.
	DeadContainers Reclaim = iota + 1
	// UnusedImages removes all images that no container uses.
	UnusedImages
)

func (r Reclaim) String() string {
	switch r {
	case DeadContainers:
		return "dead containers"
	case UnusedImages:
		return "unused images"
	}
	return "unknown"
}

// Reclaims are what the node gives back for a signal, in that order
// (buildSignalToNodeReclaimFuncs in pkg/kubelet/eviction/helpers.go): what
// is on the file system that is full. All of it is done before the node is
// observed again; one that fails does not keep the next. The list must not be
// changed.
func Reclaims(s evictionapi.Signal, l Layout) []Reclaim {
	if !s.Conditions().Disk {
		return nil
	}
	node := s == evictionapi.NodeFsAvailable || s == evictionapi.NodeFsInodesFree
	images := s == evictionapi.ImageFsAvailable || s == evictionapi.ImageFsInodesFree
	switch {
	case l == ImageFs && node:
		return nil
	case l == SplitFs && images:
		return reclaimImages
	case l == SplitFs:
		return reclaimContainers
	}
	return reclaimBoth
}

var (
	reclaimBoth       = []Reclaim{DeadContainers, UnusedImages}
	reclaimContainers = []Reclaim{DeadContainers}
	reclaimImages     = []Reclaim{UnusedImages}
)
