package policy

import "github.com/tinylet/tinylet/agent/config/evictionapi"

// Reclaim is a node-level resource that can be reclaimed before a pod is evicted.
type Reclaim uint8

const (
	// DeadContainers removes exited containers that are not needed for the status of
	// their pod, including those of terminated pods that are not deleted yet.
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

// Reclaims returns what to reclaim for a signal, in order: the resources on the full
// file system (buildSignalToNodeReclaimFuncs in pkg/kubelet/eviction/helpers.go). The
// caller performs all of them, even if one fails, before it observes the node again.
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
		return []Reclaim{UnusedImages}
	case l == SplitFs:
		return []Reclaim{DeadContainers}
	}
	return []Reclaim{DeadContainers, UnusedImages}
}
