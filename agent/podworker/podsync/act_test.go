package podsync

import (
	"errors"
	"testing"

	"github.com/tinylet/tinylet/agent/container/fake"
	"github.com/tinylet/tinylet/agent/pod"
)

// A sandbox of an earlier boot is stopped once, also by an agent that started after it was
// replaced.
func TestSandboxOfEarlierBootIsStopped(t *testing.T) {
	onBench(t, nil, func(b *bench) {
		b.BootID = "earlier"
		p := podOn(nil)
		b.runs(p)
		old := b.rt.AllSandboxes()[0].GetId()
		b.rt.Reboot()
		b.BootID = "boot"
		stop := b.rt.Inject("CreateContainer", fake.Fault{Err: errors.New("no")})
		if _, err := b.Sync(b.t.Context(), p); err == nil {
			t.Fatal("the container was created")
		}
		stop()
		stops := func() (n int) {
			for _, c := range b.rt.Calls("StopPodSandbox") {
				if c.Subject == old {
					n++
				}
			}
			return n
		}
		if n := stops(); n != 0 {
			t.Fatalf("it was stopped %d times before the pod runs", n)
		}
		b.Syncer = New(b.Config)
		b.OnPodsDiscovered([]pod.Ref{pod.RefOf(p)})
		b.runs(p)
		b.syncs(p)
		if n := stops(); n != 1 {
			t.Errorf("it was stopped %d times", n)
		}
	})
}
