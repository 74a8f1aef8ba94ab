package preflight

import "fmt"

// judgeEviction shows what pods may use of the memory, and who has the rest.
func judgeEviction(f *Facts) []Finding {
	const id = "eviction"
	e, total := f.Eviction, f.Memory.Total
	if !e.Known || total == 0 {
		return nil
	}
	kept := e.Reserved + e.Hard
	if kept >= total {
		return []Finding{warn(id, fmt.Sprintf("nothing of %s of memory is left for pods: %s are reserved, and pods are evicted while less than %s are available", mib(total), mib(e.Reserved), mib(e.Hard)),
			"lower evictionHard[memory.available], kubeReserved or systemReserved in the configuration, or take evictionHard out: then the threshold goes by the memory")}
	}
	text := fmt.Sprintf("pods may use %s of %s of memory", mib(total-kept), mib(total))
	if e.Reserved > 0 {
		text += fmt.Sprintf("; %s are kept by kubeReserved and systemReserved", mib(e.Reserved))
	}
	switch {
	case e.Hard == 0:
		text += "; none is evicted for memory, as evictionHard has no memory.available"
	case e.Default:
		text += fmt.Sprintf("; they are evicted while less than %s are available, the default for this much memory", mib(e.Hard))
	default:
		text += fmt.Sprintf("; they are evicted while less than %s are available, by evictionHard in the configuration", mib(e.Hard))
	}
	return []Finding{ok(id, "%s", text)}
}
