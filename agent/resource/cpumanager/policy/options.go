package policy

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// Options are the supported cpuManagerPolicyOptions.
type Options struct {
	// FullPhysicalCPUs is full-pcpus-only: containers get whole cores.
	FullPhysicalCPUs bool
}

const fullPhysicalCPUs = "full-pcpus-only"

// ParseOptions parses cpuManagerPolicyOptions. It rejects options that are not
// implemented, even if they are false.
func ParseOptions(given map[string]string) (Options, error) {
	var o Options
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if name != fullPhysicalCPUs {
			return Options{}, fmt.Errorf("cpuManagerPolicyOptions: option %q is not supported, only %s", name, fullPhysicalCPUs)
		}
		on, err := strconv.ParseBool(given[name])
		if err != nil {
			return Options{}, fmt.Errorf("cpuManagerPolicyOptions: %s is %q: it must be true or false", name, given[name])
		}
		o.FullPhysicalCPUs = on
	}
	return o, nil
}
