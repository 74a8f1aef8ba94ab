package resize

import (
	"errors"
	"fmt"
	"strings"
)

// ErrMemoryInUse says that a memory limit would come to lie below what is
// used, which would have the kernel kill for it.
var ErrMemoryInUse = errors.New("cannot decrease memory limits")

// Usage is the memory that is used, in bytes and with the page cache
// (memory.current), of the pod and of its running containers by name.
type Usage struct {
	Pod        Amount
	Containers map[string]Amount
}

// LowersMemory says whether a memory limit becomes less, so that Check has to
// know what is used.
func (p *Plan) LowersMemory() bool { return len(p.lowered) > 0 }

// Check refuses the plan's steps, all of them, while more memory is used than
// a new limit allows (validateMemoryResizeAction in
// pkg/kubelet/kuberuntime/kuberuntime_manager.go). The error's text is the
// message of PodResizeInProgress, and the plan is made and checked again at
// the pod's next sync. It is a check and no promise: usage may grow before
// the limit is set.
//
// The kubelet tells of a container the pod's usage; this tells its own. It
// passes over a container whose usage is missing; this refuses. And it does
// not check a pod whose own resources alone are resized.
func (p *Plan) Check(u Usage) error {
	var refused []string
	for _, l := range p.lowered {
		name, used := "pod", u.Pod
		if l.container != "" {
			name, used = fmt.Sprintf("container %q", l.container), u.Containers[l.container]
		}
		switch {
		case !used.Known:
			refused = append(refused, "missing "+name+" memory usage")
		case used.Value >= l.limit:
			refused = append(refused, fmt.Sprintf("attempting to set %s memory limit (%d) below current usage (%d)", name, l.limit, used.Value))
		}
	}
	switch len(refused) {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("%w: %s", ErrMemoryInUse, refused[0])
	}
	return fmt.Errorf("%w: [%s]", ErrMemoryInUse, strings.Join(refused, ", "))
}
