package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	kubeletapis "k8s.io/kubelet/pkg/apis"

	kubelet "github.com/tinylet/tinylet/agent/config/kubeletconfig"
)

func (c *checker) node(cfg *Config) {
	if problems := validation.IsDNS1123Subdomain(cfg.NodeName); len(problems) > 0 {
		c.invalid("the node name (--hostname-override, else the host's)", cfg.NodeName,
			"a DNS name of lower-case letters, digits, - and dots")
	}
	c.nodeIPs(cfg.NodeIPs)
	for key, value := range sorted(cfg.NodeLabels) {
		c.label(key, value)
	}
	if cfg.CloudProvider != "" && cfg.CloudProvider != "external" {
		c.invalid("--cloud-provider", cfg.CloudProvider, "empty or external")
	}
	for i := range cfg.Kubelet.RegisterWithTaints {
		c.taint(fmt.Sprintf("registerWithTaints[%d]", i), &cfg.Kubelet.RegisterWithTaints[i])
	}
}

func (c *checker) nodeIPs(addrs []netip.Addr) {
	if len(addrs) > 2 || (len(addrs) == 2 && addrs[0].Is4() == addrs[1].Is4()) {
		c.invalid("--node-ip", addrs, "one address, or one of each family")
	}
	for _, addr := range addrs {
		switch {
		case addr.Zone() != "":
			c.invalid("--node-ip", addr, "an address without a zone")
		case addr.IsLoopback() || addr.IsMulticast() || addr.IsLinkLocalUnicast():
			c.invalid("--node-ip", addr, "an address that other nodes can reach")
		}
	}
}

// label checks that the admission plugin NodeRestriction lets a node set the label
// on itself.
func (c *checker) label(key, value string) {
	path := "--node-labels " + key
	if problems := validation.IsQualifiedName(key); len(problems) > 0 {
		c.invalid("--node-labels", key, "a label's name: "+strings.Join(problems, ", "))
	}
	if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
		c.invalid(path, value, "a label's value: "+strings.Join(problems, ", "))
	}
	prefix, _, ok := strings.Cut(key, "/")
	if ok && (inDomain(prefix, "kubernetes.io") || inDomain(prefix, "k8s.io")) && !kubeletapis.IsKubeletLabel(key) {
		c.invalid("--node-labels", key, "outside kubernetes.io and k8s.io, or under node.kubernetes.io or kubelet.kubernetes.io, or one of "+
			strings.Join(kubeletapis.KubeletLabels(), ", "))
	}
}

// inDomain reports whether a domain is root or a subdomain of it.
func inDomain(domain, root string) bool {
	return domain == root || strings.HasSuffix(domain, "."+root)
}

func (c *checker) taint(path string, taint *v1.Taint) {
	if problems := validation.IsQualifiedName(taint.Key); len(problems) > 0 {
		c.invalid(path+".key", taint.Key, "a label's name: "+strings.Join(problems, ", "))
	}
	if problems := validation.IsValidLabelValue(taint.Value); len(problems) > 0 {
		c.invalid(path+".value", taint.Value, "a label's value: "+strings.Join(problems, ", "))
	}
	c.oneOf(path+".effect", string(taint.Effect), string(v1.TaintEffectNoSchedule),
		string(v1.TaintEffectPreferNoSchedule), string(v1.TaintEffectNoExecute))
	if taint.TimeAdded != nil {
		c.invalid(path+".timeAdded", taint.TimeAdded, "absent")
	}
}

func (c *checker) reservations(kc *kubelet.KubeletConfiguration) {
	c.reserved("systemReserved", kc.SystemReserved)
	c.reserved("kubeReserved", kc.KubeReserved)
	for _, level := range []string{"system-reserved", "kube-reserved"} {
		if slices.Contains(kc.EnforceNodeAllocatable, level) && slices.Contains(kc.EnforceNodeAllocatable, level+"-compressible") {
			c.invalid("enforceNodeAllocatable", level, "without "+level+"-compressible")
		}
	}
	for i, level := range kc.EnforceNodeAllocatable {
		path := "enforceNodeAllocatable"
		c.oneOf(path, level, "none", "pods", "system-reserved", "system-reserved-compressible", "kube-reserved", "kube-reserved-compressible")
		if slices.Contains(kc.EnforceNodeAllocatable[:i], level) {
			c.invalid(path, level, "named once")
		}
		switch {
		case level == "none" && len(kc.EnforceNodeAllocatable) > 1:
			c.invalid(path, level, "alone")
		case strings.HasPrefix(level, "system-reserved") && kc.SystemReservedCgroup == "":
			c.invalid("systemReservedCgroup", "", "set if enforceNodeAllocatable has "+level)
		case strings.HasPrefix(level, "kube-reserved") && kc.KubeReservedCgroup == "":
			c.invalid("kubeReservedCgroup", "", "set if enforceNodeAllocatable has "+level)
		case level != "none" && !*kc.CgroupsPerQOS:
			c.invalid("cgroupsPerQOS", false, "true if enforceNodeAllocatable has "+level)
		}
	}
}

func (c *checker) reserved(path string, reserved map[string]string) {
	for name, text := range sorted(reserved) {
		c.oneOf(path, name, "cpu", "memory", "ephemeral-storage", "pid")
		if q, err := resource.ParseQuantity(text); err != nil || q.Sign() < 0 {
			c.invalid(path+"["+name+"]", text, "a quantity such as 10Mi, 0 or more")
		}
	}
}
