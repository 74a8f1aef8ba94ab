package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// exitInterrupted is the exit code after a second signal.
const exitInterrupted = 1

// withSignals ends ctx at the first SIGTERM or SIGINT and calls exit at the
// second. stop gives the signals their old meaning back, waits for the
// goroutine behind it, and ends ctx.
func withSignals(parent context.Context, exit func(code int)) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for received := 0; ; received++ {
			select {
			case sig := <-signals:
				if received > 0 {
					exit(exitInterrupted)
					return
				}
				cancel(fmt.Errorf("signal %v", sig))
			case <-quit:
				return
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(quit)
		<-done
		cancel(context.Canceled)
	}
}
