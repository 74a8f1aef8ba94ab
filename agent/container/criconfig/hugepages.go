package criconfig

import (
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/pod"
)

// hugePageLimits returns a limit for each page size in the kernel. It is 0
// where neither the container nor the pod has one
// (GetHugepageLimitsFromResources in pkg/kubelet/kuberuntime).
func hugePageLimits(p *v1.Pod, c *v1.Container, n *Node) []*runtimeapi.HugepageLimit {
	bySize := map[string]uint64{}
	if own := pod.PodLevelResources(p); own != nil {
		addHugePageLimits(bySize, own.Limits)
	}
	addHugePageLimits(bySize, c.Resources.Limits)
	var out []*runtimeapi.HugepageLimit
	for _, size := range n.HugePageSizes {
		out = append(out, &runtimeapi.HugepageLimit{PageSize: size, Limit: bySize[size]})
	}
	return out
}

// hugePagesUnbounded is what the kubelet writes for huge pages without a limit
// (setHugePagesUnbounded in pkg/kubelet/cm/qos_container_manager_linux.go).
const hugePagesUnbounded = 1 << 62

// limitHugePages limits the huge pages of a cgroup, used and reserved ones, for
// each page size in the kernel. The limit is the request of that size, or
// otherwise, in bytes, if there is none.
func limitHugePages(files map[string]string, requests v1.ResourceList, otherwise uint64, n *Node) {
	if !n.HugePageAccounting {
		return
	}
	bySize := map[string]uint64{}
	addHugePageLimits(bySize, requests)
	for _, size := range n.HugePageSizes {
		bytes, ok := bySize[size]
		if !ok {
			bytes = otherwise
		}
		value := strconv.FormatUint(bytes, 10)
		files["hugetlb."+size+".max"], files["hugetlb."+size+".rsvd.max"] = value, value
	}
}

func addHugePageLimits(bySize map[string]uint64, limits v1.ResourceList) {
	for name, q := range limits {
		suffix, ok := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix)
		if !ok {
			continue
		}
		// Package admission rejects an invalid size; here it sets no limit.
		if size, err := resource.ParseQuantity(suffix); err == nil {
			bySize[pageSize(pod.Value(size))] = uint64(pod.Value(q))
		}
	}
}

// HugePageSize returns the name that cgroups and CRI have for the page size of a directory of
// /sys/kernel/mm/hugepages: 2MB for hugepages-2048kB. The second result is false for another
// name.
func HugePageSize(folder string) (string, bool) {
	digits, ok := strings.CutPrefix(folder, "hugepages-")
	if ok {
		digits, ok = strings.CutSuffix(digits, "kB")
	}
	kb, err := strconv.ParseUint(digits, 10, 53)
	if !ok || err != nil || kb == 0 {
		return "", false
	}
	return pageSize(int64(kb) << 10), true
}

// pageSize formats bytes in the largest unit of which they are a whole number.
func pageSize(bytes int64) string {
	units := []string{"B", "KB", "MB", "GB", "TB", "PB"}
	i := 0
	for ; bytes >= 1024 && bytes%1024 == 0 && i < len(units)-1; i++ {
		bytes /= 1024
	}
	return strconv.FormatInt(bytes, 10) + units[i]
}
