package check

import (
	"fmt"
	"strings"
)

// maxNamed bounds how many volumes a finding names.
const maxNamed = 20

// judgeVolumes is about volumes that tinylet neither serves nor takes down.
func judgeVolumes(f *Facts) []Finding {
	const id = "foreign-volumes"
	if f.Volumes.Err != "" {
		return []Finding{warn(id, "cannot tell whether a kubelet has left volumes: "+f.Volumes.Err, "mount /proc, and run tinylet check as root")}
	}
	if len(f.Volumes.Foreign) == 0 {
		return nil
	}
	var texts []string
	for i, v := range f.Volumes.Foreign {
		if i == maxNamed {
			texts = append(texts, fmt.Sprintf("and %d more", len(f.Volumes.Foreign)-i))
			break
		}
		texts = append(texts, v.Volume+" of pod "+v.Pod)
	}
	return []Finding{fail(id, "a kubelet has set up volumes that tinylet cannot take down: "+strings.Join(texts, ", "),
		"drain the node and stop the kubelet first, so that it removes these volumes; what is left after that unmount by hand, and delete it")}
}
