package wait

import (
	"cmp"
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// WatchFirst and WatchMax are the upper limits of the first and of the longest
// backoff before a watch starts again. Each backoff is at least half of its limit.
const (
	WatchFirst = 2 * time.Second
	WatchMax   = time.Minute
)

var errWatchEnded = errors.New("watch ended without an error")

// Watch runs a watch until ctx ends. watch calls notify at each change. A watch that
// ends is started again after a backoff. notify is then also called, from another
// goroutine, when the restarted watch has lasted for settle, because a change may have
// been missed. It is not called for the first start. failed is called with the first
// error, and with the next one after a watch has lasted for WatchMax. If the kernel
// lacks the watch's protocol (EPROTONOSUPPORT), Watch calls failed and returns: each
// attempt would make the kernel search for a module.
func Watch(ctx context.Context, watch func(ctx context.Context, notify func()) error, notify func(), settle time.Duration, failed func(error)) {
	backoff := Backoff{First: WatchFirst, Max: WatchMax}
	began := time.Now()
	err := watch(ctx, notify)
	for reported := false; ctx.Err() == nil; {
		if time.Since(began) >= WatchMax {
			backoff.Reset()
			reported = false
		}
		if !reported {
			failed(cmp.Or(err, errWatchEnded))
			reported = true
		}
		if errors.Is(err, unix.EPROTONOSUPPORT) || !Pause(ctx, backoff.Next()) {
			return
		}
		began = time.Now()
		missed := time.AfterFunc(settle, notify)
		err = watch(ctx, notify)
		missed.Stop()
	}
}
