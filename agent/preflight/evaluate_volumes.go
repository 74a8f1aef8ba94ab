package preflight

import (
	"fmt"
	"strings"
)

// maxNamed bounds the number of volumes in a finding.
const maxNamed = 20

// checkVolumes checks for volumes that tinylet neither mounts nor unmounts.
func checkVolumes(f *Facts) []Finding {
	const id = "foreign-volumes"
	if f.Volumes.Err != "" {
		return []Finding{warn(id, "cannot determine whether a kubelet has left volumes: "+f.Volumes.Err, "mount /proc, and run tinylet check as root")}
	}
	var texts []string
	for _, v := range f.Volumes.Foreign {
		texts = append(texts, v.Volume+" of pod "+v.Pod)
	}
	texts = append(texts, f.Volumes.Staged...)
	if len(texts) == 0 {
		return nil
	}
	if more := len(texts) - maxNamed; more > 0 {
		texts = append(texts[:maxNamed], fmt.Sprintf("and %d more", more))
	}
	return []Finding{fail(id, "a kubelet has set up volumes that tinylet cannot unmount: "+strings.Join(texts, ", "),
		"drain the node and stop the kubelet first, so that it removes these volumes; unmount and delete by hand what is left")}
}
