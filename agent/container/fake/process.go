package fake

import (
	"maps"
	"os"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// process is one container and its process.
type process struct {
	serial  int
	sandbox *sandbox
	config  *runtimeapi.ContainerConfig
	status  *runtimeapi.ContainerStatus
	program Program
	timers  []*time.Timer
	output  *os.File          // the log; nil if none is written
	files   map[string]string // by path: the files of execs
	done    chan struct{}     // closed when it has exited

	attached map[chan string]struct{} // the attached clients
}

// finish marks a running process as exited; the caller holds the lock.
func (p *process) finish(at int64, code int32, reason string) {
	for _, t := range p.timers {
		t.Stop()
	}
	if p.output != nil {
		p.output.Close()
		p.output = nil
	}
	if reason == "" {
		reason = "Completed"
		if code != 0 {
			reason = "Error"
		}
	}
	p.status.State = runtimeapi.ContainerState_CONTAINER_EXITED
	p.status.FinishedAt = at
	p.status.ExitCode = code
	p.status.Reason = reason
	close(p.done)
}

// after calls f after d with the lock held, unless the process has exited by
// then.
func (r *Runtime) after(p *process, d time.Duration, f func()) {
	p.timers = append(p.timers, time.AfterFunc(d, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		f()
	}))
}

// end ends a running process and emits its event; the caller holds the lock.
// The exit code of a process that ends while the runtime is down is lost, as in
// containerd.
func (r *Runtime) end(p *process, code int32, reason string) {
	if p.status.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return
	}
	if r.down {
		code, reason = 255, "Unknown"
	}
	p.finish(time.Now().UnixNano(), code, reason)
	r.emit(p.status.Id, p.sandbox.id, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
}

// signal delivers the stop signal; the caller holds the lock.
func (r *Runtime) signal(p *process) {
	if p.program.IgnoreTerm {
		return
	}
	code := p.program.TermCode
	if code == 0 {
		code = 143
	}
	r.end(p, code, "")
}

// remove deletes a container; the caller holds the lock.
func (r *Runtime) remove(p *process) {
	delete(r.containers, p.status.Id)
	r.emit(p.status.Id, p.sandbox.id, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
}

func (r *Runtime) inSandbox(id string) []*process {
	return slices.DeleteFunc(r.sorted(), func(p *process) bool { return p.sandbox.id != id })
}

func (r *Runtime) sorted() []*process {
	return slices.SortedFunc(maps.Values(r.containers), func(a, b *process) int { return a.serial - b.serial })
}

// ExitContainer ends a container's process with a code. It returns false if the
// container is not running.
func (r *Runtime) ExitContainer(containerID string, code int32) bool {
	return r.exit(containerID, code, "")
}

// OOMKill ends a container's process like the kernel's OOM killer. It returns
// false if the container is not running.
func (r *Runtime) OOMKill(containerID string) bool {
	return r.exit(containerID, 137, "OOMKilled")
}

func (r *Runtime) exit(containerID string, code int32, reason string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.containers[containerID]
	if p == nil || p.status.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return false
	}
	r.end(p, code, reason)
	return true
}
