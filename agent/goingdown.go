package agent

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/node/shutdown"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/podworker"
	"github.com/tinylet/tinylet/agent/podworker/podstatus"
	"github.com/tinylet/tinylet/agent/server/local"
)

const (
	// tellLimit is how long a node that goes down waits for the API server to
	// hear how its pods ended.
	tellLimit = 5 * time.Second
	// spareTime is what ending the pods may take beyond their own periods.
	spareTime = 10 * time.Second
	// flagName is beside the socket: a file of this name says that the agent
	// is stopped because the machine goes down.
	flagName = "shutdown"
)

// runFolder is the directory of files that a reboot may remove.
func runFolder(cfg *config.Config) string {
	return filepath.Dir(cmp.Or(cfg.Tinylet.SocketPath, local.DefaultSocketPath))
}

// assembleShutdown builds what ends the pods when the machine goes down.
func (p *parts) assembleShutdown(cfg *config.Config, log *slog.Logger) {
	p.flagFile = filepath.Join(runFolder(cfg), flagName)
	p.shutdown = shutdown.New(shutdown.Config{
		Periods: shutdown.Periods(&cfg.Kubelet),
		Pods:    p.notOver,
		End: func(pd *v1.Pod, grace time.Duration) {
			// One that is stopping has a reason of its own.
			if state, ok := p.workers.State(pd.UID); ok && state != podworker.Terminating {
				p.syncer.Evict(pd.UID, podstatus.Reason{Reason: shutdown.ReasonEnded, Message: shutdown.MessageEnded})
			}
			p.workers.TerminatePod(pd.UID, grace)
		},
		Ended: p.ended,
		Changed: func() {
			if p.cluster != nil {
				p.cluster.registrar.Trigger()
			}
		},
		Events: p.events, FlagFile: p.flagFile, Log: log,
	})
}

// ended says that nothing of a pod runs or is mounted any more.
func (p *parts) ended(uid types.UID) bool {
	state, ok := p.workers.State(uid)
	return !ok || state == podworker.Terminated
}

// notOver are the pods of which something runs, or is still to run.
func (p *parts) notOver() []*v1.Pod {
	var pods []*v1.Pod
	for _, e := range p.statuses.List() {
		if !p.ended(e.Pod.UID) {
			pods = append(pods, e.Pod)
		}
	}
	return pods
}

// forgetFlag takes away what an earlier end of the agent was told.
func (p *parts) forgetFlag(log *slog.Logger) {
	if err := os.Remove(p.flagFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("flag of an earlier shutdown stays: the pods will end with the agent", "path", p.flagFile, "error", err)
	}
}

// whenTold ends what runs under inner once ctx has ended: at once, or after
// the pods where the machine goes down.
func (p *parts) whenTold(ctx, inner context.Context, end context.CancelFunc, log *slog.Logger) {
	defer end()
	select {
	case <-ctx.Done():
		close(p.stopping)
	case <-inner.Done():
		return
	}
	if !p.shutdown.Requested() {
		return
	}
	log.Info("machine goes down", "flag", p.flagFile)
	limited, cancel := context.WithTimeout(inner, p.shutdown.Time()+spareTime)
	defer cancel()
	switch err := p.goDown(limited); {
	case errors.Is(err, shutdown.ErrOff):
		log.Info("pods are left to the end of the machine: shutdownGracePeriod is not set")
	case err != nil:
		log.Warn("pods did not end before the machine goes down", "error", err)
	}
}

// goDown ends the pods, and blocks until they have ended and the API server,
// if it answers, has heard of it.
func (p *parts) goDown(ctx context.Context) error {
	if err := p.shutdown.Shutdown(ctx); err != nil {
		return err
	}
	if p.cluster == nil {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, tellLimit)
	defer cancel()
	p.cluster.untilTold(limited, func() (waiting []types.UID) {
		for _, e := range p.statuses.List() {
			if endedByShutdown(e.Status) && !pod.IsStatic(e.Pod) {
				waiting = append(waiting, e.Pod.UID)
			}
		}
		return waiting
	})
	return nil
}

// endedByShutdown says whether a pod has failed because the machine goes down,
// not for a reason of its own.
func endedByShutdown(s *v1.PodStatus) bool {
	return s.Phase == v1.PodFailed && (s.Reason == shutdown.ReasonEnded || s.Reason == shutdown.ReasonRejected)
}

// heard takes the pods as the API server has them, and notes which it knows to
// have failed in a shutdown: those may not run again.
func (c *cluster) heard(pods []*v1.Pod) {
	c.known.Store(&pods)
	select {
	case c.news <- struct{}{}:
	default:
	}
	if c.journal == nil || !slices.ContainsFunc(pods, func(p *v1.Pod) bool { return endedByShutdown(&p.Status) }) {
		return
	}
	journaled := c.journal.UIDs()
	for _, p := range pods {
		if !endedByShutdown(&p.Status) || !slices.Contains(journaled, p.UID) {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), tellLimit)
		if err := c.journal.Finish(ctx, p.UID, &p.Status); err != nil {
			c.log.Warn("pod that the shutdown has ended may run again after a reboot without network", "pod", pod.RefOf(p).String(), "podUID", p.UID, "error", err)
		}
		cancel()
	}
}

// untilTold blocks until the API server knows that those pods have ended, or
// has none of their names, or ctx ends.
func (c *cluster) untilTold(ctx context.Context, ended func() []types.UID) {
	for {
		known := c.known.Load()
		if known == nil {
			return // it never answered
		}
		waits := false
		uids := ended()
		for _, p := range *known {
			if slices.Contains(uids, p.UID) && p.Status.Phase != v1.PodFailed && p.Status.Phase != v1.PodSucceeded {
				waits = true
			}
		}
		if !waits {
			return
		}
		select {
		case <-c.news:
		case <-ctx.Done():
			return
		}
	}
}
