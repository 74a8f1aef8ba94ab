package reaper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod"
)

// node is a runtime with one pod that has one container or, if sandbox, only its sandbox, and
// its kernel.
type node struct {
	sandbox    bool
	statusRuns bool // by the pod's status
	populated  bool
	unreadable error
	state      runtimeapi.ContainerState // by CRI
	removed    bool
	listFails  error
	ended      bool // by the runtime's own record
	endedFails error
	shimless   bool
	endFails   error

	did []string
}

func (n *node) Running(context.Context) []Container {
	if !n.statusRuns {
		return nil
	}
	c := Container{Ref: pod.Ref{UID: "u", Namespace: "default", Name: "p"}, Name: "c", ID: "id", Cgroup: "/kubepods/podu/id"}
	if n.sandbox {
		c.Name = ""
	}
	return []Container{c}
}

func (n *node) Populated(path string) (bool, error) {
	if path != "/kubepods/podu/id" {
		return false, fmt.Errorf("asked for %s", path)
	}
	return n.populated, n.unreadable
}

func (n *node) ListContainers(_ context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	n.did = append(n.did, "list "+filter.GetId())
	if n.listFails != nil || n.removed {
		return nil, n.listFails
	}
	return []*runtimeapi.Container{{Id: "id", PodSandboxId: "sandbox", State: n.state}}, nil
}

func (n *node) ListPodSandbox(_ context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	n.did = append(n.did, "list sandbox "+filter.GetId())
	if n.listFails != nil || n.removed {
		return nil, n.listFails
	}
	state := runtimeapi.PodSandboxState_SANDBOX_READY
	if n.state == exited {
		state = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	}
	return []*runtimeapi.PodSandbox{{Id: "id", State: state}}, nil
}

func (n *node) Ended(_ context.Context, id string) (bool, error) {
	n.did = append(n.did, "ask "+id)
	return n.ended, n.endedFails
}

func (n *node) EndShim(sandbox string) (bool, error) {
	n.did = append(n.did, "end "+sandbox)
	return !n.shimless, n.endFails
}

func (n *node) Warning(ref pod.Ref, reason, _ string) {
	n.did = append(n.did, reason+" "+ref.Name)
}

func (n *node) wake(uid types.UID) { n.did = append(n.did, "wake "+string(uid)) }

const (
	runs   = runtimeapi.ContainerState_CONTAINER_RUNNING
	exited = runtimeapi.ContainerState_CONTAINER_EXITED
)

// TestAfterCheck checks that AfterCheck is called after each check, also if no
// container runs.
func TestAfterCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, checks := reaperOf(&node{}), 0
		r.cfg.AfterCheck = func() { checks++ }
		ctx, cancel := context.WithTimeout(t.Context(), 3*checkInterval+time.Second)
		defer cancel()
		if err := r.Run(ctx); !errors.Is(err, context.DeadlineExceeded) || checks != 3 {
			t.Errorf("AfterCheck was called %d times in three minutes: %v", checks, err)
		}
	})
}

func TestReaper(t *testing.T) {
	lost := node{statusRuns: true, state: runs, ended: true}
	healed := []string{"list id", "ask id", "end sandbox", "ContainerLost p"}
	for _, tc := range []struct {
		name string
		node node
		// change happens between checks, before the one of that number.
		change func(check int, n *node)
		checks int
		want   []string
	}{
		{name: "a lost one is left alone at first", node: lost, checks: 1},
		{name: "and then its shim is ended", node: lost, checks: 2, want: healed},
		{name: "once", node: lost, checks: 5, want: healed},
		{name: "one with processes is never asked for", node: node{statusRuns: true, state: runs, populated: true, ended: true}, checks: 5},
		{name: "one that has ended by its status is not either", node: node{state: runs, ended: true}, checks: 5},
		{
			name: "one that had no process just then", node: lost, checks: 6,
			change: func(check int, n *node) { n.populated = check%2 == 0 },
		},
		{
			name: "whose group cannot be read", node: node{statusRuns: true, state: runs, ended: true, unreadable: errors.New("EIO")}, checks: 5,
		},
		{
			name: "whose end was not heard of: the pod is looked at again", node: node{statusRuns: true, state: exited, ended: true},
			checks: 5, want: []string{"list id", "wake u"},
		},
		{
			name: "that is gone from the runtime", node: node{statusRuns: true, removed: true},
			checks: 5, want: []string{"list id", "wake u"},
		},
		{
			name: "whose processes are elsewhere is left alone", node: node{statusRuns: true, state: runs},
			checks: 3, want: []string{"list id", "ask id", "list id", "ask id"},
		},
		{
			name: "whose processes stay elsewhere is queried less and less often", node: node{statusRuns: true, state: runs},
			checks: 65, want: slices.Repeat([]string{"list id", "ask id"}, 7), // at checks 2, 3, 5, 9, 17, 33 and 65
		},
		{
			name: "a lost sandbox", node: node{sandbox: true, statusRuns: true, state: runs, ended: true}, checks: 5,
			want: []string{"list sandbox id", "ask id", "end id", "ContainerLost p"},
		},
		{
			name: "a sandbox that was stopped", node: node{sandbox: true, statusRuns: true, state: exited, ended: true},
			checks: 5, want: []string{"list sandbox id", "wake u"},
		},
		{
			name: "a sandbox that was removed", node: node{sandbox: true, statusRuns: true, removed: true},
			checks: 5, want: []string{"list sandbox id", "wake u"},
		},
		{
			name: "whose exit the shim sees late", node: node{statusRuns: true, state: runs}, checks: 4,
			change: func(check int, n *node) { n.ended = check == 2 },
			want:   append([]string{"list id", "ask id"}, healed...),
		},
		{
			name: "of a runtime that has nothing below CRI", node: node{statusRuns: true, state: runs, endedFails: fmt.Errorf("get: %w", container.ErrUnsupported)},
			checks: 5, want: []string{"list id", "ask id"},
		},
		{
			name: "of a runtime that is away", node: node{statusRuns: true, state: runs, listFails: container.ErrUnavailable},
			checks: 4, want: []string{"list id", "list id", "list id"},
		},
		{
			name: "of a shim that hangs", node: node{statusRuns: true, state: runs, endedFails: container.ErrTimeout},
			checks: 3, want: []string{"list id", "ask id", "list id", "ask id"},
		},
		{
			name: "of a shim that cannot be ended", node: node{statusRuns: true, state: runs, ended: true, endFails: errors.New("EPERM")},
			checks: 3, want: []string{"list id", "ask id", "end sandbox", "list id", "ask id", "end sandbox"},
		},
		{
			name: "without a shim", node: node{statusRuns: true, state: runs, ended: true, shimless: true},
			checks: 5, want: []string{"list id", "ask id", "end sandbox"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := tc.node
			r := reaperOf(&n)
			for i := range tc.checks {
				if tc.change != nil {
					tc.change(i, &n)
				}
				r.check(t.Context())
			}
			if diff := cmp.Diff(tc.want, n.did); diff != "" {
				t.Errorf("did (-want +got):\n%s", diff)
			}
		})
	}
}

func reaperOf(n *node) *Reaper {
	return New(Config{
		Running: n.Running, Populated: n.Populated, Runtime: n, Tasks: n, Wake: n.wake, Events: n,
		Log: slog.New(slog.DiscardHandler),
	})
}

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := node{statusRuns: true, state: runs, ended: true}
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error, 1)
		go func() { done <- reaperOf(&n).Run(ctx) }()
		time.Sleep(2*checkInterval + time.Second)
		over := errors.New("over")
		cancel(over)
		if err := <-done; !errors.Is(err, over) {
			t.Errorf("Run ends with %v", err)
		}
		if len(n.did) == 0 {
			t.Error("nothing was done in two minutes")
		}
	})
}
