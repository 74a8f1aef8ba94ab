package criconfig

import (
	"path"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// PodCgroups returns the cgroups that a pod of that UID may have, one for each
// QoS class. It serves the cleanup of a pod whose spec is not known any more.
func PodCgroups(uid types.UID, n *Node) []string {
	classes := []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort}
	paths := make([]string, len(classes))
	for i, class := range classes {
		paths[i] = n.cgroup(append(qosCgroup(class), "pod"+string(uid))...)
	}
	return paths
}

// PodUIDOfCgroup returns the UID of the pod whose cgroup has that name, directly below
// the cgroup of its QoS class. A slice has dashes of the UID as underscores, so
// a UID with underscores is returned with dashes, as in the kubelet
// (ParseSystemdToCgroupName in pkg/kubelet/cm/cgroup_manager_linux.go). ok is
// false if the name is not that of a pod's cgroup.
func PodUIDOfCgroup(name string, class v1.PodQOSClass, n *Node) (uid types.UID, ok bool) {
	before, after := "pod", ""
	if n.CgroupDriver == DriverSystemd {
		before, after = strings.TrimSuffix(path.Base(QoSCgroup(class, n)), slice)+"-pod", slice
	}
	text, isPod := strings.CutPrefix(name, before)
	text, isGroup := strings.CutSuffix(text, after)
	if n.CgroupDriver == DriverSystemd {
		text = strings.ReplaceAll(text, "_", "-")
	}
	return types.UID(text), isPod && isGroup && text != ""
}
