package handler

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
)

// slowExec runs commands that take as long as their first word says, and
// notes how many run at a time and in which order they begin.
type slowExec struct {
	mu      sync.Mutex
	running int
	most    int
	begun   []string
}

func (s *slowExec) ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (stdout, stderr []byte, exitCode int32, err error) {
	s.mu.Lock()
	s.running++
	s.most = max(s.most, s.running)
	s.begun = append(s.begun, id)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.running--
		s.mu.Unlock()
	}()
	takes, err := time.ParseDuration(cmd[0])
	if err != nil {
		return nil, nil, 0, err
	}
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return nil, nil, 0, context.Cause(ctx)
	}
	return nil, nil, 0, nil
}

func probeOf(takes string) *v1.ProbeHandler {
	return &v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{takes}}}
}

// A few commands run at a time; the others wait for a slot. The wait does not
// count against the timeout of their probe.
func TestCommandsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exec := &slowExec{}
		r := New(exec)
		var all sync.WaitGroup
		ids := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"}
		for _, id := range ids {
			all.Go(func() {
				result, err := r.Probe(t.Context(), probeOf("900ms"), Target{ContainerID: id, Container: &v1.Container{}}, time.Second)
				if err != nil || result.Status != Success {
					t.Errorf("%s: %v, %v", id, result, err)
				}
			})
			synctest.Wait() // they come one after the other
		}
		all.Wait()
		if exec.most != maxCommands {
			t.Errorf("%d commands ran at a time", exec.most)
		}
		for i := 0; i < len(ids); i += maxCommands { // those end at the same time
			if four := exec.begun[i : i+maxCommands]; !slices.Equal(slices.Sorted(slices.Values(four)), ids[i:i+maxCommands]) {
				t.Errorf("the commands began in the order %v", exec.begun)
				break
			}
		}
	})
}

// Commands that never end do not block others.
func TestSlowCommandsGiveTheirPlaceUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(&slowExec{})
		var all sync.WaitGroup
		for range 3 * maxCommands {
			all.Go(func() {
				_, _ = r.Probe(t.Context(), probeOf("10h"), Target{ContainerID: "slow", Container: &v1.Container{}}, time.Hour)
			})
		}
		synctest.Wait()
		begun := time.Now()
		result, err := r.Probe(t.Context(), probeOf("100ms"), Target{ContainerID: "quick", Container: &v1.Container{}}, time.Second)
		if took := time.Since(begun); err != nil || result.Status != Success || took > 3*maxSlotTime+time.Second {
			t.Errorf("after %v: %v, %v", took, result, err)
		}
		all.Wait()
	})
}

// A probe that is cancelled while it waits has no result.
func TestCommandIsGivenUpWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exec := &slowExec{}
		r := New(exec)
		var all sync.WaitGroup
		for range maxCommands {
			all.Go(func() {
				_, _ = r.Probe(t.Context(), probeOf("1s"), Target{ContainerID: "slow", Container: &v1.Container{}}, time.Minute)
			})
		}
		synctest.Wait()
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		all.Go(func() {
			if _, err := r.Probe(ctx, probeOf("1s"), Target{ContainerID: "late", Container: &v1.Container{}}, time.Minute); !errors.Is(err, gone) {
				t.Errorf("got %v", err)
			}
		})
		synctest.Wait()
		cancel(gone)
		all.Wait()
		if len(exec.begun) != maxCommands {
			t.Errorf("ran %v", exec.begun)
		}
	})
}
