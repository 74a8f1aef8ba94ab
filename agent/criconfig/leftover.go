package criconfig

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// PodCgroups are the cgroups that a pod of that UID may have, one for each
// QoS class, for who takes down a pod whose spec nobody knows any more.
func PodCgroups(uid types.UID, n *Node) []string {
	classes := []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort}
	paths := make([]string, len(classes))
	for i, class := range classes {
		paths[i] = n.cgroup(append(qosCgroup(class), "pod"+string(uid))...)
	}
	return paths
}
