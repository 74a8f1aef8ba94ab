package stats

// labelSize is about how long the labels of one group are, in bytes.
const labelSize = 320

// labelText is the memory in which the labels of many rows are made, so that
// they are not made one by one.
type labelText struct {
	free []byte // empty, with what is left as its capacity
}

func newLabelText(rows int) labelText {
	return labelText{free: make([]byte, 0, rows*labelSize)}
}

// begin is what labels are appended to.
func (t *labelText) begin() []byte { return t.free }

// keep takes labels, which began as begin, for good.
func (t *labelText) keep(labels []byte) []byte {
	if n := len(labels); n <= cap(t.free) {
		t.free = t.free[n:n]
	}
	return labels[:len(labels):len(labels)]
}
