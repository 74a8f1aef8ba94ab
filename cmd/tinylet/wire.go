package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/tinylet/tinylet/agent/config"
)

// run is the agent.
func run(context.Context, *config.Config, *slog.Logger) error {
	return errors.New("run agent: this build has none")
}
