package podsync

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/container"
)

// The record that a container has run stays, unless the pod is settled.
func TestSpare(t *testing.T) {
	of := func(id, name string, s container.State) container.Container {
		return container.Container{ID: id, Name: name, State: s}
	}
	const created, running, exited, lost = container.StateCreated, container.StateRunning, container.StateExited, container.StateUnknown
	for _, tc := range []struct {
		name           string
		all            []container.Container // the newest first
		lives, settled []string
	}{
		{"runs after a crash", []container.Container{of("2", "a", running), of("1", "a", exited), of("0", "a", exited)}, []string{"1", "0"}, []string{"1", "0"}},
		{"waits after a crash", []container.Container{of("2", "a", exited), of("1", "a", exited)}, []string{"1"}, []string{"2", "1"}},
		{"about to start", []container.Container{of("3", "a", created), of("2", "a", exited), of("1", "a", exited)}, []string{"1"}, []string{"2", "1"}},
		{"names apart", []container.Container{of("4", "a", running), of("3", "init", exited), of("2", "b", exited)}, nil, []string{"3", "2"}},
		{"not known", []container.Container{of("2", "a", lost), of("1", "a", exited)}, []string{"1"}, []string{"1"}},
		{"nothing", nil, nil, nil},
	} {
		o := &container.Observed{Containers: tc.all}
		if got := removable(o, false); !slices.Equal(got, tc.lives) {
			t.Errorf("%s: of a pod that lives %v, want %v", tc.name, got, tc.lives)
		}
		if got := removable(o, true); !slices.Equal(got, tc.settled) {
			t.Errorf("%s: of one that is settled %v, want %v", tc.name, got, tc.settled)
		}
	}
}

// The termination message of a container that the worker creates meanwhile stays.
func TestMessageOfContainerBeingCreated(t *testing.T) {
	onBench(t, nil, func(b *bench) {
		p := podOn(nil)
		id := b.runs(p)
		o, err := container.Observe(b.t.Context(), b.rt, p.UID)
		if err != nil {
			t.Fatal(err)
		}
		old, created := o.Containers[0].TerminationMessagePath, ""
		b.rt.removing = func(string) { created, err = b.Volumes.TerminationMessage(p.UID, "app") }
		b.rt.ExitContainer(id, 0)
		if err := errors.Join(b.RemoveExited(b.t.Context(), func(types.UID) bool { return true }), err); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(created); err != nil {
			t.Errorf("message of the new container: %v", err)
		}
		if _, err := os.Stat(old); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("message of the removed container: %v", err)
		}
	})
}
