package cpumanager

import (
	"fmt"
	"maps"
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"

	kubelet "github.com/tinylet/tinylet/agent/config/kubeletconfig"
	"github.com/tinylet/tinylet/agent/resource/cpumanager/policy"
)

// cpu is the resource's name in kubeReserved and systemReserved.
const cpu = "cpu"

// Reserve replaces the cpu of kubeReserved and systemReserved by the number of CPUs
// in reservedSystemCPUs, as a kubelet does with any policy
// (cmd/kubelet/app/server.go). It does nothing without reservedSystemCPUs.
func Reserve(k *kubelet.KubeletConfiguration) error {
	if k.ReservedSystemCPUs == "" {
		return nil
	}
	reserved, err := parseReserved(k)
	if err != nil {
		return err
	}
	k.KubeReserved, k.SystemReserved = maps.Clone(k.KubeReserved), maps.Clone(k.SystemReserved)
	delete(k.KubeReserved, cpu)
	if k.SystemReserved == nil {
		k.SystemReserved = make(map[string]string)
	}
	k.SystemReserved[cpu] = strconv.Itoa(reserved.Size())
	return nil
}

func parseReserved(k *kubelet.KubeletConfiguration) (policy.Set, error) {
	s, err := policy.Parse(k.ReservedSystemCPUs)
	if err != nil {
		return policy.Set{}, fmt.Errorf("reservedSystemCPUs: %w", err)
	}
	return s, nil
}

// settings are the inputs of the policy.
type settings struct {
	topology policy.Topology
	reserved policy.Set
	options  policy.Options
}

// readSettings takes the settings from the validated configuration and from the machine,
// whose CPUs are in the sysfs directory root.
func readSettings(k *kubelet.KubeletConfiguration, root string) (settings, error) {
	var s settings
	var err error
	if s.options, err = policy.ParseOptions(k.CPUManagerPolicyOptions); err != nil {
		return s, err
	}
	if s.topology, err = ReadTopology(root); err != nil {
		return s, fmt.Errorf("cpuManagerPolicy %s: %w", policy.Static, err)
	}
	named, err := parseReserved(k)
	if err != nil {
		return s, err
	}
	amounts := [2]resource.Quantity{}
	for i, text := range []string{k.KubeReserved[cpu], k.SystemReserved[cpu]} {
		if text == "" {
			continue
		}
		if amounts[i], err = resource.ParseQuantity(text); err != nil {
			return s, fmt.Errorf("parse reserved cpu %q: %w", text, err)
		}
	}
	if s.reserved, err = policy.Reserve(s.topology, named, amounts[0], amounts[1]); err != nil {
		return s, err
	}
	// Report at the start what Restore would fail for.
	_, err = policy.New(s.topology, s.reserved, s.options)
	return s, err
}
