package evictionapi

import (
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Conditions are the node conditions MemoryPressure, DiskPressure and
// PIDPressure.
type Conditions struct {
	Memory, Disk, PID bool
}

// Or returns the conditions that c or d has.
func (c Conditions) Or(d Conditions) Conditions {
	return Conditions{c.Memory || d.Memory, c.Disk || d.Disk, c.PID || d.PID}
}

// String lists the conditions that are true, in brackets, in the form of upstream's
// messages.
func (c Conditions) String() string {
	var names []string
	for _, one := range [...]struct {
		holds bool
		name  v1.NodeConditionType
	}{{c.Memory, v1.NodeMemoryPressure}, {c.Disk, v1.NodeDiskPressure}, {c.PID, v1.NodePIDPressure}} {
		if one.holds {
			names = append(names, string(one.name))
		}
	}
	return "[" + strings.Join(names, " ") + "]"
}
