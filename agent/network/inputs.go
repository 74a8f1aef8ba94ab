package network

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/tinylet/tinylet/agent/wait"
)

// Inputs are what other components report to a Network. They exist before the Network, which is
// their only reader. Their methods do not block, and are safe for concurrent use.
type Inputs struct {
	trigger wait.Wakeup // to reconcile

	mu           sync.Mutex
	assigned     []netip.Prefix // podCIDRs from the API server
	podCIDRError error          // why the podCIDRs are unusable
	direct       []netip.Prefix
	directed     bool // Direct was called
	answered     bool // the API server has returned the Node without podCIDRs
	// restartBackoff means that podCIDRs are due, so that the backoff starts again.
	restartBackoff bool
}

// NewInputs returns Inputs without any report.
func NewInputs() *Inputs { return &Inputs{trigger: wait.NewWakeup()} }

// Trigger triggers a reconcile, because a link, a route or a rule may have changed.
func (in *Inputs) Trigger() { in.trigger.Set() }

// Assigned sets the networks that the API server has assigned to this node's pods
// (podCIDRs of the Node). An empty list changes no network; the first one shows that the
// node is registered, so that podCIDRs are due. An unusable list changes only Problem.
func (in *Inputs) Assigned(texts []string) {
	if len(texts) == 0 {
		in.mu.Lock()
		first := !in.answered
		in.answered, in.restartBackoff = true, in.restartBackoff || first
		in.mu.Unlock()
		if first {
			in.Trigger()
		}
		return
	}
	networks, err := parsePodCIDRs(texts)
	in.mu.Lock()
	changed := fmt.Sprint(err) != fmt.Sprint(in.podCIDRError)
	in.podCIDRError = err
	if err == nil && !slices.Equal(networks, in.assigned) {
		in.assigned, changed = networks, true
	}
	in.mu.Unlock()
	if changed {
		in.Trigger()
	}
}

// Direct sets the networks of other nodes' pods that are reached without
// masquerading to this node's address. In mode routed, those of the last
// configuration are used until the first call. The rules change with the next
// reconcile, the file at most a minute later (directWriteInterval).
func (in *Inputs) Direct(networks []netip.Prefix) {
	in.mu.Lock()
	changed := !in.directed || !slices.Equal(networks, in.direct)
	in.direct, in.directed = networks, true
	in.mu.Unlock()
	if changed {
		in.Trigger()
	}
}

// assignedNetworks returns what Assigned has set.
func (in *Inputs) assignedNetworks() ([]netip.Prefix, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.assigned, in.podCIDRError
}

// directNetworks returns what Direct has set; set is false before its first call.
func (in *Inputs) directNetworks() (networks []netip.Prefix, set bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.direct, in.directed
}

// takeRestart reports whether the backoff has to start again, once.
func (in *Inputs) takeRestart() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	restart := in.restartBackoff
	in.restartBackoff = false
	return restart
}
