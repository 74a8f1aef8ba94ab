package criconfig

import (
	"path"
	"strings"

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

// LeftPod is the UID of the pod whose cgroup has that name, directly below
// that of its QoS class. A slice has dashes of the UID as underscores, so that
// of a UID with underscores comes out with dashes, as with a kubelet
// (ParseSystemdToCgroupName in pkg/kubelet/cm/cgroup_manager_linux.go).
func LeftPod(name string, class v1.PodQOSClass, n *Node) (uid types.UID, ok bool) {
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
