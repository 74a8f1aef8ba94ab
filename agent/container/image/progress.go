package image

import (
	"fmt"
	"sync"
	"time"

	"github.com/tinylet/tinylet/agent/pod"
)

// When the progress of a long pull is reported. CRI does not report bytes.
const (
	progressFirst = 30 * time.Second
	progressEvery = time.Minute
)

// reportProgress periodically reports that a pull is in progress, as an event and in
// the log, until stop is called. The event's message is constant, so that the
// event is counted and not repeated.
func (p *Puller) reportProgress(ref pod.Ref, image string) (stop func()) {
	begun := time.Now()
	ended := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		timer := time.NewTimer(progressFirst)
		defer timer.Stop()
		for {
			select {
			case <-ended:
				return
			case <-timer.C:
			}
			p.cfg.Events.Normal(ref, eventPulling, fmt.Sprintf("Still pulling image %q", image))
			p.cfg.Log.Info("still pulling image", "pod", ref.String(), "podUID", ref.UID, "image", image,
				"seconds", int64(time.Since(begun)/time.Second))
			timer.Reset(progressEvery)
		}
	})
	return func() {
		close(ended)
		wg.Wait()
	}
}
