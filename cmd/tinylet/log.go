package main

import (
	"flag"
	"io"
	"log/slog"
	"strconv"

	"k8s.io/klog/v2"

	"github.com/tinylet/tinylet/agent/config"
)

// newLogger writes to w in the configured format. --v lowers the level step
// by step: logr's and klog's V(n) is slog's level -n, so that 4 is Debug.
func newLogger(w io.Writer, cfg *config.Config) *slog.Logger {
	options := &slog.HandlerOptions{Level: slog.LevelInfo - slog.Level(cfg.Kubelet.Logging.Verbosity)}
	if cfg.Tinylet.LogFormat == config.LogJSON {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// routeLibraries sends what libraries log by klog or by package log to the
// same place. klog checks its own verbosity before slog's level.
func routeLibraries(log *slog.Logger, cfg *config.Config) {
	slog.SetDefault(log)
	klog.SetSlogLogger(log)
	var flags flag.FlagSet
	klog.InitFlags(&flags)
	// The flag takes any number that Load let pass.
	_ = flags.Set("v", strconv.FormatUint(uint64(cfg.Kubelet.Logging.Verbosity), 10))
}
