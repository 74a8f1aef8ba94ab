package stats

// labelSize is the approximate size in bytes of the labels of one cgroup.
const labelSize = 320

// labelText is an arena for the labels of many rows, which avoids an allocation
// for each.
type labelText struct {
	free []byte // empty; its capacity is the remaining space
}

func newLabelText(rows int) labelText {
	return labelText{free: make([]byte, 0, rows*labelSize)}
}

// begin returns an empty slice to append labels to.
func (t *labelText) begin() []byte { return t.free }

// keep returns labels with their memory reserved. labels must have been
// appended to the result of begin.
func (t *labelText) keep(labels []byte) []byte {
	if n := len(labels); n <= cap(t.free) {
		t.free = t.free[n:n]
	}
	return labels[:len(labels):len(labels)]
}
