package stats

// labelSize is the approximate size in bytes of the labels of one cgroup.
const labelSize = 320

// labelArena is an arena for the labels of many rows, which avoids an allocation
// for each.
type labelArena struct {
	free []byte // empty; its capacity is the remaining space
}

func newLabelArena(rows int) labelArena {
	return labelArena{free: make([]byte, 0, rows*labelSize)}
}

// begin returns an empty slice to append labels to.
func (t *labelArena) begin() []byte { return t.free }

// keep returns labels with their memory reserved. labels must have been
// appended to the result of begin.
func (t *labelArena) keep(labels []byte) []byte {
	if n := len(labels); n <= cap(t.free) {
		t.free = t.free[n:n]
	}
	return labels[:len(labels):len(labels)]
}
