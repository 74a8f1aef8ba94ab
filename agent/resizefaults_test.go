package agent

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/container/fake"
)

// Two resizes that the disk does not take do not wake each other without end.
func TestTwoResizesOnAFullDisk(t *testing.T) {
	sizing(t, func(t *testing.T, l *sizes) {
		wakes := 0
		set := l.prepare
		l.prepare = func(p *parts) {
			set(p)
			wake := p.syncer.Wake
			p.syncer.Wake = func(uid types.UID) {
				if wakes++; wakes < 500 { // else the test would not end
					wake(uid)
				}
			}
		}
		web, other := sized(t, "web", "250m", "64Mi"), sized(t, "other", "250m", "64Mi")
		l.begin(web, other)
		record := filepath.Join(l.cfg.Paths.Root, "tinylet", "allocations.new")
		if err := os.MkdirAll(record, 0o755); err != nil { // a folder where the file has to be
			t.Fatal(err)
		}
		wakes = 0
		web, other = grown(web, "300m", "64Mi"), grown(other, "300m", "64Mi")
		l.ask(web, other)
		l.settle(time.Minute)
		if wakes > 20 {
			t.Errorf("%d wakeups in a minute", wakes)
		}
		if err := os.Remove(record); err != nil {
			t.Fatal(err)
		}
		l.settle(time.Minute)
		for _, p := range []*v1.Pod{web, other} {
			l.resizedTo(p, "300m/300m 64Mi/64Mi of 300m 64Mi", 0)
		}
	})
}

// A pod that is wanted again before it was gone can be resized in its new life.
func TestResizeOfAPodThatCameBack(t *testing.T) {
	sizing(t, func(t *testing.T, l *sizes) {
		web := sized(t, "web", "250m", "64Mi")
		l.begin(web)
		remove := l.runtime.Inject("StopContainer", fake.Fault{Delay: 10 * time.Second})
		l.ask()
		l.ask(web)
		l.settle(time.Minute)
		remove()
		web = grown(web, "500m", "128Mi")
		l.ask(web)
		l.settle(time.Minute)
		if got, want := l.has(web), "500m 512 128Mi"; got != want {
			t.Errorf("has %s, want %s", got, want)
		}
		other := sized(t, "other", "600m", "64Mi") // for which there is no room beside it
		l.ask(web, other)
		if phase := l.status(other.UID).Phase; phase != v1.PodFailed {
			t.Errorf("a pod too much is %s", phase)
		}
	})
}
