package probe

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
)

// MaxSaved is the maximum size of the saved state in bytes.
const MaxSaved = 1 << 20

// savedVersion is the version of the format.
const savedVersion = 1

// savedState is the state of all running containers with probes. Times are
// nanoseconds on the clock of Config.Uptime, because the wall clock may jump
// between two starts of the agent.
type savedState struct {
	Version    int              `json:"version"`
	BootID     string           `json:"bootID"`
	Containers []savedContainer `json:"containers"`
}

// keepEarlier is how long the state of a container that the agent has not observed is
// retained after the agent's start. A pod may have ended while no agent ran.
const keepEarlier = time.Hour

// savedContainer is the state of one container.
type savedContainer struct {
	ID      string    `json:"id"`
	Pod     types.UID `json:"pod"`
	Started bool      `json:"started,omitempty"`
	Ready   bool      `json:"ready,omitempty"`
	// Failed is the kind of the probe for which the container has to be
	// restarted; empty means none.
	Failed string `json:"failed,omitempty"`
	// Begun is the time at which the container started.
	Begun  int64        `json:"begun"`
	Checks []savedCheck `json:"checks,omitempty"`
}

// savedCheck is the state of one probe.
type savedCheck struct {
	Kind string `json:"kind"`
	// Last is the last result, and Run its number of occurrences in a row. Run
	// is capped at the threshold, beyond which it has no effect.
	Last bool `json:"last,omitempty"`
	Run  int  `json:"run,omitempty"`
	// Off reports whether the probe no longer runs. It is false for a probe that a
	// termination of the pod stopped: after an eviction that the restarted agent does not
	// know of, the pod runs on.
	Off bool `json:"off,omitempty"`
	// Due is the time of the next run, or a whole number of periods before it.
	Due int64 `json:"due"`
}

// decodeSaved decodes the output of encode. It returns an error for any other data,
// because a wrong state could make an unready pod ready.
func decodeSaved(data []byte) (*savedState, error) {
	if len(data) > MaxSaved {
		return nil, fmt.Errorf("%d bytes exceed the limit of %d", len(data), MaxSaved)
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	s := new(savedState)
	if err := decoder.Decode(s); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("data after the JSON object")
	}
	if s.Version != savedVersion {
		return nil, fmt.Errorf("unsupported version %d, want %d", s.Version, savedVersion)
	}
	ids := make(map[string]bool, len(s.Containers))
	for i := range s.Containers {
		c := &s.Containers[i]
		if err := c.valid(); err != nil {
			return nil, fmt.Errorf("container %q: %w", c.ID, err)
		}
		if ids[c.ID] {
			return nil, fmt.Errorf("duplicate container %q", c.ID)
		}
		ids[c.ID] = true
	}
	return s, nil
}

// valid returns an error for a state that no container can have.
func (c *savedContainer) valid() error {
	if c.ID == "" || c.Pod == "" {
		return errors.New("no ID or no pod UID")
	}
	if c.Ready && !c.Started {
		return errors.New("ready but not started")
	}
	if c.Failed != "" && c.Failed != startup.String() && c.Failed != liveness.String() {
		return fmt.Errorf("invalid kind %q of failed probe", c.Failed)
	}
	if c.Begun < 0 {
		return errors.New("negative start time")
	}
	var seen [kinds]bool
	for i := range c.Checks {
		check := &c.Checks[i]
		k := kindOf(check.Kind)
		if k == kinds || seen[k] {
			return fmt.Errorf("unknown or duplicate probe %q", check.Kind)
		}
		seen[k] = true
		if check.Run < 0 || check.Due < 0 {
			return fmt.Errorf("probe %q: negative run or due", check.Kind)
		}
	}
	return nil
}

// kindOf returns the kind of a name, or kinds if there is none.
func kindOf(name string) kind {
	for k := range kinds {
		if k.String() == name {
			return k
		}
	}
	return kinds
}

// loadState loads the state that an earlier process of the agent saved. It ignores that of
// another boot.
func (m *Manager) loadState(data []byte) {
	if len(data) == 0 {
		return
	}
	s, err := decodeSaved(data)
	if err != nil {
		m.Log.Warn("cannot decode saved probe state", "error", err,
			"remedy", "none needed: the API server's status is used, or the next probe results")
		return
	}
	if s.BootID != m.BootID {
		return // its containers no longer run
	}
	m.expires = time.Now().Add(keepEarlier)
	m.restored = make(map[string]*savedContainer, len(s.Containers))
	for i := range s.Containers {
		m.restored[s.Containers[i].ID] = &s.Containers[i]
	}
}

// takeRestored removes and returns the saved state of a container; nil if there is none.
// The caller holds the lock.
func (m *Manager) takeRestored(uid types.UID, id string) *savedContainer {
	s := m.restored[id]
	if s == nil || s.Pod != uid {
		return nil
	}
	delete(m.restored, id)
	return s
}

// uptime reads the kernel's monotonic clock, which starts at boot. A restart of
// the agent does not reset it, and it cannot be set. It returns 0 on error.
func uptime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// resume restores the state that an earlier process of the agent saved of the
// container.
func (t *target) resume(s *savedContainer, now time.Time, uptime time.Duration) {
	at := func(saved int64) time.Time { return now.Add(time.Duration(saved) - uptime) }
	if t.begun = at(s.Begun); t.begun.After(now) {
		t.begun = now
	}
	t.result.Started = s.Started || t.checks[startup] == nil
	t.result.Ready = t.result.Started && (s.Ready || t.checks[readiness] == nil)
	for i := range s.Checks {
		saved := &s.Checks[i]
		k := kindOf(saved.Kind)
		c := t.checks[k]
		if c == nil {
			continue
		}
		c.lastOK, c.streak = saved.Last, saved.Run
		c.stopped = saved.Off || k == startup && s.Started
		// The check keeps its period's phase. The saved time may be old: a probe
		// that only confirms a result is not saved.
		c.due = nextTick(at(saved.Due), c.period, now)
		if latest := now.Add(max(c.period, c.delay)); c.due.After(latest) {
			c.due = latest // a valid due time is never later
		}
		if k == readiness && !t.result.Ready {
			c.due = time.Time{} // a run interrupted by the restart may have made it ready
		}
		if s.Failed == saved.Kind {
			c.fail()
		}
	}
}

// save returns the state of a container to save. The caller holds the lock.
func (t *target) save(now time.Time, uptime time.Duration) savedContainer {
	since := func(at time.Time) int64 { return max(int64(uptime+at.Sub(now)), 0) }
	out := savedContainer{
		ID: t.id, Pod: t.pod.pod.UID, Started: t.result.Started, Ready: t.result.Ready, Failed: t.result.Failed, Begun: since(t.begun),
	}
	for k, c := range t.checks {
		if c == nil {
			continue
		}
		out.Checks = append(out.Checks, savedCheck{
			Kind: kind(k).String(), Last: c.lastOK, Run: min(c.streak, c.threshold(c.lastOK)), Off: c.stopped && !t.pod.terminating, Due: since(c.due),
		})
	}
	return out
}

// encode encodes the state of all containers, sorted by ID. It drops restored state that has
// expired. It takes the manager's lock.
func (m *Manager) encode() ([]byte, error) {
	m.mu.Lock()
	now, up := time.Now(), m.Uptime()
	s := savedState{Version: savedVersion, BootID: m.BootID, Containers: []savedContainer{}}
	for _, st := range m.pods {
		for i := range st.containers {
			if t := st.containers[i].target; t != nil {
				s.Containers = append(s.Containers, t.save(now, up))
			}
		}
	}
	if now.After(m.expires) {
		m.restored = nil
	}
	for _, c := range m.restored {
		s.Containers = append(s.Containers, *c)
	}
	m.mu.Unlock()
	slices.SortFunc(s.Containers, func(a, b savedContainer) int { return cmp.Compare(a.ID, b.ID) })
	data, err := json.Marshal(&s)
	if err == nil && len(data) > MaxSaved {
		err = fmt.Errorf("%d bytes exceed the limit of %d", len(data), MaxSaved)
	}
	return data, err
}

// markChanged records a change of the state. The caller holds the lock.
func (m *Manager) markChanged() {
	m.version++
	if m.SaveState != nil {
		m.unsaved.Set()
	}
}

// persist saves the current state. It blocks on SaveState, also of another call. It does
// nothing if the state of the time of the call was saved already. It logs the first of
// several failures in a row.
func (m *Manager) persist() {
	if m.SaveState == nil {
		return
	}
	m.mu.Lock()
	want := m.version
	m.mu.Unlock()
	m.persistMu.Lock()
	defer m.persistMu.Unlock()
	if m.persistedVersion >= want {
		return
	}
	m.mu.Lock()
	has := m.version
	m.mu.Unlock()
	data, err := m.encode()
	if err == nil {
		err = m.SaveState(data)
	}
	if err != nil {
		if !m.persistFailed {
			m.Log.Warn("cannot save probe state", "error", err,
				"remedy", "free space in the folder; until then a restart of the agent may change which pods are ready")
		}
		m.persistFailed = true
		return
	}
	m.persistedVersion, m.persistFailed = has, false
}
