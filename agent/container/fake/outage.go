package fake

import (
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Stop stops the runtime like a kill of containerd: connections break, and
// calls fail with container.ErrUnavailable. Processes continue. Their exits are
// visible after Start, and no event reports them.
func (r *Runtime) Stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down = true
	r.breakConnections()
}

// Start starts the runtime again after Stop.
func (r *Runtime) Start() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down = false
}

// Restart is Stop and Start: objects persist, connections break.
func (r *Runtime) Restart() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down = false
	r.breakConnections()
}

// Hang makes the runtime accept calls without answering, and silences its event
// stream, until Resume, Stop or Restart.
func (r *Runtime) Hang() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hung == nil {
		r.hung = make(chan struct{})
	}
}

// Resume ends Hang: waiting calls proceed, and queued events are delivered.
func (r *Runtime) Resume() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.resume()
}

func (r *Runtime) resume() {
	if r.hung != nil {
		close(r.hung)
		r.hung = nil
	}
}

// breakConnections breaks all connections; the caller holds the lock.
func (r *Runtime) breakConnections() {
	close(r.broken)
	r.broken = make(chan struct{})
	r.resume()
}

// Reboot simulates a power cut and a boot: processes and networks are gone, the
// records persist. Containers that ran have exited with containerd's 255 and
// reason Unknown; created ones stay created.
func (r *Runtime) Reboot() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down = false
	r.breakConnections()
	now := time.Now().UnixNano()
	for _, s := range r.sandboxes {
		s.state = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
		s.ip = ""
	}
	for _, p := range r.containers {
		if p.status.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
			p.finish(now, 255, "Unknown")
		}
	}
}
