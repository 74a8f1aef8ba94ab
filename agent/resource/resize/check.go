package resize

import (
	"errors"
	"fmt"
	"strings"
)

// ErrMemoryInUse means that a new memory limit would be below the current usage, and
// the kernel would OOM-kill.
var ErrMemoryInUse = errors.New("cannot decrease memory limits")

// Usage is the memory usage of the pod and of its running containers by name, in
// bytes including the page cache (memory.current).
type Usage struct {
	Pod        Amount
	Containers map[string]Amount
}

// LowersMemory reports whether a memory limit decreases, so that Check needs the
// usage.
func (p *Plan) LowersMemory() bool { return len(p.lowered) > 0 }

// Check rejects all steps of the plan while memory usage is not below a new limit
// (validateMemoryResizeAction in pkg/kubelet/kuberuntime/kuberuntime_manager.go). The
// error text is the message of PodResizeInProgress. The caller plans and checks again
// at the pod's next sync. Check guarantees nothing: usage may grow before the limit
// is set.
//
// The kubelet reports the pod's usage for a container; this reports the container's
// own. The kubelet skips a container whose usage is missing; this rejects. The
// kubelet does not check a pod of which only the pod-level resources are resized;
// this does.
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
