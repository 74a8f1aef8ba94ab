package config

import (
	"regexp"
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"

	kubelet "github.com/tinylet/tinylet/agent/config/kubeletconfig"
)

// cpuList matches the kernel's list format (cpuset(7)). Whether the machine has
// the CPUs is checked when the agent starts.
var cpuList = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$`)
})

// staticCPUPolicy is the value of cpuManagerPolicy with which containers can have exclusive
// CPUs.
const staticCPUPolicy = "static"

func (c *checker) cpus(kc *kubelet.KubeletConfiguration) {
	c.oneOf("cpuManagerPolicy", kc.CPUManagerPolicy, "none", staticCPUPolicy)
	if len(kc.CPUManagerPolicyOptions) > 0 && kc.CPUManagerPolicy != staticCPUPolicy {
		c.invalid("cpuManagerPolicyOptions", "set", "absent unless cpuManagerPolicy is "+staticCPUPolicy)
	}
	if kc.ReservedSystemCPUs != "" {
		if !cpuList().MatchString(kc.ReservedSystemCPUs) {
			c.invalid("reservedSystemCPUs", kc.ReservedSystemCPUs, "a list of CPUs such as 0-1,3")
		}
		if kc.SystemReservedCgroup != "" || kc.KubeReservedCgroup != "" {
			c.invalid("reservedSystemCPUs", kc.ReservedSystemCPUs, "empty if systemReservedCgroup or kubeReservedCgroup is set")
		}
	} else if kc.CPUManagerPolicy == staticCPUPolicy && !reservesCPU(kc) {
		c.invalid("cpuManagerPolicy", staticCPUPolicy, "none if no CPU is reserved for the system: set reservedSystemCPUs, or cpu in kubeReserved or systemReserved")
	}
}

// reservesCPU reports whether the reservations include CPU. It returns true for an
// invalid quantity, which c.reserved reports.
func reservesCPU(kc *kubelet.KubeletConfiguration) bool {
	for _, reserved := range []map[string]string{kc.KubeReserved, kc.SystemReserved} {
		text, set := reserved["cpu"]
		if !set {
			continue
		}
		if q, err := resource.ParseQuantity(text); err != nil || q.Sign() > 0 {
			return true
		}
	}
	return false
}
