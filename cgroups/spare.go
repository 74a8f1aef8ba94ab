package cgroups

// Spare is r without a memory limit that is below what the group uses, and
// true if it had one: the kernel would kill in the group at once. File pages
// that nobody used lately do not count, since it takes these back first: they
// fill a group up to its limit, and none goes for its own sake. A group that
// does not exist, or whose memory is not counted, uses nothing.
func (t *Tree) Spare(path string, r Resources) (spared Resources, tooLow bool) {
	if r.MemoryMax <= 0 {
		return r, false
	}
	if current, err := t.MemoryCurrent(path); err != nil || current <= uint64(r.MemoryMax) {
		return r, false
	}
	if m, err := t.Memory(path); err == nil && m.WorkingSet <= uint64(r.MemoryMax) {
		return r, false
	}
	r.MemoryMax = 0
	return r, true
}
