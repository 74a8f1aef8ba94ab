package preflight

import "fmt"

// checkEviction reports how much memory pods may use, and what is reserved or kept
// free by eviction.
func checkEviction(f *Facts) []Finding {
	const id = "eviction"
	e, total := f.Eviction, f.Memory.Total
	if !e.Known || total == 0 {
		return nil
	}
	kept := e.Reserved + e.Hard
	if kept >= total {
		return []Finding{warn(id, fmt.Sprintf("no memory is allocatable of %s: %s are reserved, and pods are evicted below %s available", mib(total), mib(e.Reserved), mib(e.Hard)),
			"lower evictionHard[memory.available], kubeReserved or systemReserved in the configuration, or remove evictionHard to use the default for this much memory")}
	}
	text := fmt.Sprintf("pods may use %s of %s of memory", mib(total-kept), mib(total))
	if e.Reserved > 0 {
		text += fmt.Sprintf("; %s are reserved by kubeReserved and systemReserved", mib(e.Reserved))
	}
	switch {
	case e.Hard == 0:
		text += "; no pod is evicted for memory, because evictionHard has no memory.available"
	case e.Default:
		text += fmt.Sprintf("; pods are evicted below %s available, the default for this much memory", mib(e.Hard))
	default:
		text += fmt.Sprintf("; pods are evicted below %s available, by evictionHard in the configuration", mib(e.Hard))
	}
	return []Finding{ok(id, "%s", text)}
}
