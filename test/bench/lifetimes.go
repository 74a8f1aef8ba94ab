package bench

import (
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// lifetimes records when a watch first reported that pods run, and that they are
// gone. Its methods may be called concurrently.
type lifetimes struct {
	mu      sync.Mutex
	running map[string]time.Time
	gone    map[string]time.Time
	broken  map[string]string // pods that will never run, and why
}

func newLifetimes() *lifetimes {
	return &lifetimes{running: make(map[string]time.Time), gone: make(map[string]time.Time), broken: make(map[string]string)}
}

// see takes an event that arrived at a time.
func (l *lifetimes) see(kind watch.EventType, p *corev1.Pod, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if kind == watch.Deleted {
		l.gone[p.Name] = at
		return
	}
	switch p.Status.Phase {
	case corev1.PodRunning:
		if _, known := l.running[p.Name]; !known {
			l.running[p.Name] = at
		}
	case corev1.PodFailed, corev1.PodSucceeded:
		if p.DeletionTimestamp == nil {
			l.broken[p.Name] = strings.TrimSpace(fmt.Sprintf("%s %s %s", p.Status.Phase, p.Status.Reason, p.Status.Message))
		}
	default: // on its way
	}
}

// ran returns how long after a start each pod ran, and false as long as one
// does not.
func (l *lifetimes) ran(names []string, start time.Time) ([]time.Duration, bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range names {
		if why, broken := l.broken[name]; broken {
			return nil, false, fmt.Errorf("pod %s has ended: %s", name, why)
		}
	}
	took, all := after(l.running, names, start)
	return took, all, nil
}

// went is ran for pods that are to be gone.
func (l *lifetimes) went(names []string, start time.Time) ([]time.Duration, bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	took, all := after(l.gone, names, start)
	return took, all, nil
}

func after(times map[string]time.Time, names []string, start time.Time) (took []time.Duration, all bool) {
	for _, name := range names {
		at, ok := times[name]
		if !ok {
			return nil, false
		}
		took = append(took, at.Sub(start))
	}
	return took, true
}
