package agent

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/event"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/podsync"
	"github.com/tinylet/tinylet/agent/restore"
	"github.com/tinylet/tinylet/agent/status"
	"github.com/tinylet/tinylet/agent/worker"
)

// reasonNotJournaled is for a pod that runs, and would not come back after a
// reboot without network.
const reasonNotJournaled = "FailedJournal"

// openJournal opens the journal of the API server's pods. A journal that
// cannot be opened stops nobody: nil is none.
func (p *parts) openJournal(cfg *config.Config, met func() bool, log *slog.Logger) *restore.Store {
	store, err := restore.Open(restore.Config{
		Dir:     filepath.Join(cfg.Paths.State, "journal"),
		KeyFile: cfg.Tinylet.JournalKeyFile,
		Met:     met,
		Started: func(uid types.UID) *metav1.Time {
			if _, s, ok := p.statuses.Get(uid); ok {
				return s.StartTime
			}
			return nil
		},
		Log: log,
	})
	if err != nil {
		log.Error("journal of the cluster's pods cannot be used: they will not come back after a reboot without network", "error", err)
		p.events.Warning(pod.Ref{}, reasonNotJournaled, err.Error())
		return nil
	}
	return store
}

// journaled is a Syncer that has the API server's pods on the disk before
// anything of them runs, and off it when they are gone.
type journaled struct {
	*podsync.Syncer
	store    *restore.Store
	statuses *status.Store
	events   *event.Recorder
}

var _ worker.Syncer = (*journaled)(nil)

// Sync implements worker.Syncer. A pod for which there is no room runs all the
// same.
func (j *journaled) Sync(ctx context.Context, p *v1.Pod) (worker.Result, error) {
	if !pod.IsStatic(p) {
		if err := j.store.Admit(ctx, p); err != nil && ctx.Err() == nil {
			j.events.Warning(pod.RefOf(p), reasonNotJournaled, "it will not come back after a reboot without network: "+err.Error())
		}
	}
	return j.Syncer.Sync(ctx, p)
}

// Finish implements worker.Syncer.
func (j *journaled) Finish(ctx context.Context, ref pod.Ref, p *v1.Pod) error {
	if err := j.Syncer.Finish(ctx, ref, p); err != nil {
		return err
	}
	if p == nil || pod.IsStatic(p) {
		return nil
	}
	_, s, ok := j.statuses.Get(ref.UID)
	if !ok || endedByShutdown(s) {
		return nil // it runs again after the reboot, unless the server hears of its end
	}
	err := j.store.Finish(ctx, ref.UID, s)
	if errors.Is(err, restore.ErrFull) {
		j.events.Warning(ref, reasonNotJournaled, "it may start again after a reboot without network: "+err.Error())
		return nil
	}
	return err
}

// Forget implements worker.Syncer.
func (j *journaled) Forget(ctx context.Context, ref pod.Ref) error {
	if err := j.Syncer.Forget(ctx, ref); err != nil {
		return err
	}
	err := j.store.Forget(ctx, ref.UID)
	if errors.Is(err, restore.ErrFull) {
		return nil // it is forgotten here, and on the disk with the next write
	}
	return err
}
