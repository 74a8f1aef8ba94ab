package image

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/wait"
)

// The time to the first report of the progress of a pull, and between further ones. CRI
// does not report bytes.
const (
	progressFirst = 30 * time.Second
	progressEvery = time.Minute
)

// reportProgress periodically reports that a pull is in progress, as an event and in the
// log, until ctx ends or stop is called. stop waits for the goroutine. The event's message is
// constant, so that the event is counted and not repeated.
func (p *Puller) reportProgress(ctx context.Context, ref pod.Ref, image string) (stop func()) {
	begun := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		for pause := progressFirst; wait.Pause(ctx, pause); pause = progressEvery {
			p.cfg.Events.Normal(ref, eventPulling, fmt.Sprintf("Still pulling image %q", image))
			p.cfg.Log.Info("still pulling image", "pod", ref.String(), "podUID", ref.UID, "image", image,
				"seconds", int64(time.Since(begun)/time.Second))
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}
