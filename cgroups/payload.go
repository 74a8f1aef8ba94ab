package cgroups

import (
	"cmp"
	"errors"
	"strings"
)

const (
	scopeSuffix   = ".scope"
	serviceSuffix = ".service"
	// inScope is the group that crun makes below the scope of a container: what
	// is the scope's own belongs to systemd (crun(1), run.oci.systemd.subgroup).
	// runc makes none.
	inScope = "container"
)

// Payload is the group that has the processes of a container, by the path of
// the container's: the same one, or in a scope the one that the runtime has
// made below it. It blocks only on the kernel.
func (t *Tree) Payload(path string) string {
	if in := path + "/" + inScope; strings.HasSuffix(path, scopeSuffix) && t.Exists(in) {
		return in
	}
	return path
}

// setPayload gives the group of a scope's processes the limits that the scope
// has got: each of the two bounds them.
func (t *Tree) setPayload(path string, r Resources) error {
	in := t.Payload(path)
	if in == path {
		return nil
	}
	if err := t.Set(in, r); err != nil && !errors.Is(err, ErrNotFound) { // the container has ended
		return err
	}
	return nil
}

// limitsInScope are those that bound a scope's processes: of the two groups the
// lower ones, and the weight of the scope, which has siblings.
func (t *Tree) limitsInScope(path string) (Limits, error) {
	l, err := t.Limits(path)
	if err != nil {
		return Limits{}, err
	}
	in := t.Payload(path)
	if in == path {
		return l, nil
	}
	inner, err := t.Limits(in)
	if errors.Is(err, ErrNotFound) { // the container has ended
		return l, nil
	}
	if err != nil {
		return Limits{}, err
	}
	if inner.MemoryMax.Known && (!l.MemoryMax.Known || inner.MemoryMax.Value < l.MemoryMax.Value) {
		l.MemoryMax = inner.MemoryMax
	}
	if inner.lessCPU(l) {
		l.CPUQuota, l.CPUPeriod = inner.CPUQuota, inner.CPUPeriod
	}
	return l, nil
}

// lessCPU says whether l bounds CPU time more than other does.
func (l Limits) lessCPU(other Limits) bool {
	if !l.CPUQuota.Known || l.CPUQuota.Value == NoLimit {
		return false
	}
	if !other.CPUQuota.Known || other.CPUQuota.Value == NoLimit {
		return true
	}
	share := func(l Limits) float64 { return float64(l.CPUQuota.Value) / float64(l.CPUPeriod) }
	return cmp.Less(share(l), share(other))
}
