package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"syscall"

	"k8s.io/klog/v2"

	"github.com/tinylet/tinylet/agent/config"
)

// withSignals cancels ctx at the first SIGTERM or SIGINT and calls exit at the
// second. stop restores the default handling of the signals, waits for the
// goroutine of withSignals, and cancels ctx.
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
					exit(1)
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

// newLogger returns a logger that writes to w in the configured format. --v
// lowers the level step by step: V(n) of logr and klog is level -n of slog, so
// --v=4 is Debug.
func newLogger(w io.Writer, cfg *config.Config) *slog.Logger {
	options := &slog.HandlerOptions{Level: slog.LevelInfo - slog.Level(cfg.Kubelet.Logging.Verbosity)}
	if cfg.Tinylet.LogFormat == config.LogJSON {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// routeLibraries sends the messages that libraries log with klog or package log
// to log. klog checks its own verbosity before slog's level.
func routeLibraries(log *slog.Logger, cfg *config.Config) {
	slog.SetDefault(log)
	klog.SetSlogLogger(log)
	var flags flag.FlagSet
	klog.InitFlags(&flags)
	// Load has validated the number.
	_ = flags.Set("v", strconv.FormatUint(uint64(cfg.Kubelet.Logging.Verbosity), 10))
}

// gcPercent is the garbage collection target percentage: how much the heap may
// grow over the live heap before it is collected. Go's default of 100 doubles
// 3 MB. 50 saves 2 MB for the pods on boards where memory is scarce. It costs
// one more collection for each pod start, about 40 ms on an emulated board.
const gcPercent = 50

// setGCPercent sets gcPercent, unless the environment variable GOGC is set.
func setGCPercent() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}
