package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/server/local"
	"github.com/tinylet/tinylet/agent/store/journal"
	"github.com/tinylet/tinylet/agent/store/upgrade"
	"github.com/tinylet/tinylet/agent/wait"
)

// A new binary is confirmed if the agent is healthy after trialMinimum. An agent that is not
// healthy until trialLimit ends itself, which counts as a failed start.
const (
	trialMinimum  = time.Minute
	trialInterval = 10 * time.Second
	trialLimit    = 5 * time.Minute
)

// errNotConfirmed means that the agent did not get healthy with a new binary.
var errNotConfirmed = errors.New("the new binary is not confirmed: the agent was not healthy within 5 minutes")

// onTrial runs the agent, and confirms its binary if that is on trial.
func onTrial(ctx context.Context, cfg *config.Config, log *slog.Logger, files upgrade.Files, run func(context.Context, *config.Config, *slog.Logger) error) error {
	if reason := files.Undone(); reason != "" {
		log.Warn("upgrade was undone", "reason", reason, "remedy", "see this log from the time of the upgrade on; install another version")
	}
	if !files.OnTrial() {
		if err := files.Confirm(); err != nil {
			log.Warn("cannot delete former binary", "error", err, "remedy", "delete "+files.Former)
		}
		return run(ctx, cfg, log)
	}
	if err := readsJournal(cfg); err != nil {
		return err
	}
	client := local.NewClient(cfg.Tinylet.SocketPath)
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := confirm(ctx, log, files, func(ctx context.Context) error { return healthy(ctx, client) }); err != nil {
			cancel(err)
		}
	}()
	err := run(ctx, cfg, log)
	cancel(nil)
	<-done
	if cause := context.Cause(ctx); errors.Is(cause, errNotConfirmed) {
		return errors.Join(cause, err)
	}
	return err
}

// readsJournal returns an error if the node has a journal of another format. A node that runs
// on does not need the journal, and so would be healthy, until it boots without a network.
func readsJournal(cfg *config.Config) error {
	if cfg.Kubeconfig == "" || cfg.Tinylet.Journal == config.JournalOff {
		return nil
	}
	dir := cfg.Paths.Journal()
	if _, err := journal.Sealed(dir); errors.Is(err, journal.ErrVersion) {
		return fmt.Errorf("the new binary cannot read the journal in %s, so the former one starts after the second failure: %w; to keep the new one, move the directory away", dir, err)
	}
	return nil
}

// confirm confirms the binary as soon as healthy returns nil, after trialMinimum. It returns
// errNotConfirmed if that has not happened at trialLimit.
func confirm(ctx context.Context, log *slog.Logger, files upgrade.Files, healthy func(context.Context) error) error {
	deadline := time.Now().Add(trialLimit) // of the monotonic clock
	log.Info("new binary is on trial", "confirmedAfter", trialMinimum)
	for pause := trialMinimum; wait.Pause(ctx, pause); pause = trialInterval {
		err := healthy(ctx)
		if err == nil {
			err = files.Confirm()
			switch {
			case err == nil:
				log.Info("confirmed new binary")
				return nil
			case errors.Is(err, upgrade.ErrReplaced):
				log.Info("another binary is on trial")
				return nil
			}
		}
		if ctx.Err() == nil && !time.Now().Before(deadline) {
			log.Error("new binary does not work", "error", err, "remedy", "the former binary starts after the second failure; see tinylet status")
			return errNotConfirmed
		}
	}
	return nil
}

// healthy returns an error unless the agent answers on its socket and its checks pass. The
// container runtime does not count: a former binary could not use one that is down either.
func healthy(ctx context.Context, client *local.Client) error {
	status, err := client.Status(ctx)
	if err != nil {
		return err
	}
	return healthyBut(status.Health, local.RuntimeCheck)
}

// healthyBut returns an error with the names of the checks that fail, except one.
func healthyBut(failed map[string]string, except string) error {
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(failed)), func(name string) bool { return name == except })
	if len(names) > 0 {
		return fmt.Errorf("not healthy: %s", strings.Join(names, ", "))
	}
	return nil
}
