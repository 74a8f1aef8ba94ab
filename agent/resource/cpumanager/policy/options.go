package policy

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// Options are those of cpuManagerPolicyOptions.
type Options struct {
	// FullPhysicalCPUs is full-pcpus-only: a container gets whole cores.
	FullPhysicalCPUs bool
}

const fullPhysicalCPUs = "full-pcpus-only"

// ParseOptions reads cpuManagerPolicyOptions. It refuses what is not built
// here, also where it is switched off.
func ParseOptions(given map[string]string) (Options, error) {
	var o Options
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if name != fullPhysicalCPUs {
			return Options{}, fmt.Errorf("cpuManagerPolicyOptions: the option %q is not supported: only %s is", name, fullPhysicalCPUs)
		}
		on, err := strconv.ParseBool(given[name])
		if err != nil {
			return Options{}, fmt.Errorf("cpuManagerPolicyOptions: %s is %q: it takes true or false", name, given[name])
		}
		o.FullPhysicalCPUs = on
	}
	return o, nil
}
