package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/agent/podworker"
	"github.com/tinylet/tinylet/agent/podworker/podstatus"
	"github.com/tinylet/tinylet/agent/podworker/podsync"
	"github.com/tinylet/tinylet/agent/server/local"
	"github.com/tinylet/tinylet/agent/source/offline"
	"github.com/tinylet/tinylet/agent/store/journal"
	"github.com/tinylet/tinylet/agent/store/tpmkey"
)

// reasonNotJournaled is for a pod that runs, and would not come back after a
// reboot without network.
const reasonNotJournaled = "FailedJournal"

// keeping is what is kept of the API server's pods on the disk, and what
// somebody has to do about it.
type keeping struct {
	dir   string
	store *offline.Store // nil where nothing is kept
	// state is how local.Journal says it.
	state string
	// problem is what somebody has to do, "" for nothing.
	problem string
}

// Remedies of a journal, for people.
const (
	remedyUnsealed = "the Secrets of the cluster's pods are on the disk in clear: set journalKeyTPMFile or another key in TinyletConfiguration and run `tinylet journal-key --migrate`, or set journal: off"
	remedyNoKey    = "pods of the API server are not kept for a reboot without network: journal is sealed, and no key is configured: set journalKeyTPMFile, journalKeyFile or journalKeyring"
)

// openJournal opens the journal of the API server's pods as TinyletConfiguration
// wants it. A journal that cannot be opened stops nobody; but one that another
// process has open is that of another agent, whose socket is elsewhere.
func (p *parts) openJournal(cfg *config.Config, met, ask func() bool, log *slog.Logger) (*keeping, error) {
	k := &keeping{dir: filepath.Join(cfg.Paths.State, "journal"), state: local.JournalNone}
	if cfg.Tinylet.Journal == config.JournalOff {
		k.state = local.JournalOff
		k.remove(log)
		return k, nil
	}
	if cfg.Tinylet.Journal == config.JournalSealed && !cfg.Tinylet.HasJournalKey() {
		k.problem = remedyNoKey
		log.Warn("journal has no key, pods are not kept", "remedy", "set journalKeyTPMFile, journalKeyFile or journalKeyring")
		p.events.Warning(pod.Ref{}, reasonNotJournaled, remedyNoKey)
		return k, nil
	}
	key, anchor := offline.Sources(&cfg.Tinylet, tpmkey.Device)
	store, err := offline.Open(offline.Config{
		Dir:       k.dir,
		Key:       key,
		Anchor:    anchor,
		Contacted: met,
		MayRead:   ask,
		Started: func(uid types.UID) *metav1.Time {
			if _, s, ok := p.statuses.Get(uid); ok {
				return s.StartTime
			}
			return nil
		},
		Log: log,
	})
	if errors.Is(err, journal.ErrLocked) {
		return nil, fmt.Errorf("%w: it has the journal in %q open, and its socket is not %q; stop it first (two agents would start every pod twice)",
			local.ErrOtherAgent, k.dir, cmp.Or(cfg.Tinylet.SocketPath, local.DefaultSocketPath))
	}
	if err != nil {
		log.Error("journal of the cluster's pods cannot be used: they will not come back after a reboot without network", "error", err)
		p.events.Warning(pod.Ref{}, reasonNotJournaled, err.Error())
		k.problem = "pods of the API server are not kept for a reboot without network: " + err.Error()
		return k, nil
	}
	k.store, k.state = store, local.JournalSealed
	if key == nil {
		k.state, k.problem = local.JournalPlain, remedyUnsealed
		log.Warn("journal is not sealed", "remedy", "set journalKeyTPMFile, journalKeyFile or journalKeyring, or journal: off")
	}
	if err := store.QuarantineReason(); err != nil {
		k.problem = err.Error()
		p.events.Warning(pod.Ref{}, reasonNotJournaled, err.Error())
	}
	return k, nil
}

// remove removes a journal of before.
func (k *keeping) remove(log *slog.Logger) {
	removed, err := offline.Remove(k.dir)
	if err != nil {
		k.problem = fmt.Sprintf("journal is off, and a former one could not be removed: %v: remove %s", err, k.dir)
		log.Error("former journal cannot be removed", "error", err, "remedy", "remove "+k.dir)
		return
	}
	if removed {
		log.Info("former journal was removed", "dir", k.dir)
	}
}

// told is what the local API shows of it.
func (k *keeping) told() *local.Journal {
	j := &local.Journal{State: k.state, Aside: offline.Quarantined(k.dir)}
	if k.store != nil {
		j.Secrets = k.store.Secrets()
	}
	return j
}

// todo is what somebody has to do, "" for nothing.
func (k *keeping) todo(aside []string) string {
	if len(aside) == 0 || k.store != nil && k.store.QuarantineReason() != nil {
		return k.problem
	}
	return joined(k.problem, "journals that were put aside are on the disk, with the Secrets that they had: remove what nobody needs: "+strings.Join(aside, " "))
}

// joined is problems as one.
func joined(problems ...string) string {
	return strings.Join(slices.DeleteFunc(problems, func(p string) bool { return p == "" }), "; ")
}

// journaled is a Syncer that has the API server's pods on the disk before
// anything of them runs, how they ended before the server hears of it, and
// nothing of them when they are gone.
type journaled struct {
	*podsync.Syncer
	store    *offline.Store
	statuses *podstatus.Store
	events   *event.Recorder
	// tellable is told of a pod whose end the API server may hear now. It must
	// not block.
	tellable func(types.UID)

	mu     sync.Mutex
	unkept map[types.UID]bool // ends that did not come to the disk
}

var _ podworker.Syncer = (*journaled)(nil)

// Sync implements podworker.Syncer. A pod for which there is no room runs all the
// same. One that asks for another size is kept as it was until it is written
// down what it was allocated: after a reboot it would else have what it asks
// for.
func (j *journaled) Sync(ctx context.Context, p *v1.Pod) (podworker.Result, error) {
	if !pod.IsStatic(p) && !j.ResizeUndecided(p.UID) {
		if err := j.store.Admit(ctx, p); err != nil && ctx.Err() == nil {
			j.events.Warning(pod.RefOf(p), reasonNotJournaled, "it will not come back after a reboot without network: "+err.Error())
		}
	}
	result, err := j.Syncer.Sync(ctx, p)
	if err == nil && result.Done {
		_ = j.keepEnd(ctx, pod.RefOf(p), p) // Finish repeats it
	}
	return result, err
}

// Terminate implements podworker.Syncer.
func (j *journaled) Terminate(ctx context.Context, ref pod.Ref, p *v1.Pod, grace time.Duration) error {
	err := j.Syncer.Terminate(ctx, ref, p, grace)
	if err == nil {
		_ = j.keepEnd(ctx, ref, p) // Finish repeats it
	}
	return err
}

// Finish implements podworker.Syncer.
func (j *journaled) Finish(ctx context.Context, ref pod.Ref, p *v1.Pod) error {
	if err := j.Syncer.Finish(ctx, ref, p); err != nil {
		return err
	}
	return j.keepEnd(ctx, ref, p)
}

// keepEnd keeps how a pod ended, if it has, and lets the API server hear of
// it.
func (j *journaled) keepEnd(ctx context.Context, ref pod.Ref, p *v1.Pod) error {
	if p == nil || pod.IsStatic(p) {
		return nil
	}
	_, s, ok := j.statuses.Get(ref.UID)
	if !ok || !terminal(s.Phase) || endedByShutdown(s) {
		return nil // what a shutdown ended runs again, unless the server hears of its end
	}
	told := j.mayTell(p, s)
	err := j.store.Finish(ctx, ref.UID, s)
	if err != nil && ctx.Err() == nil {
		// A disk that takes nothing is no reason to leave a Job without its end.
		j.mu.Lock()
		j.unkept[ref.UID] = true
		j.mu.Unlock()
	}
	if !told && j.mayTell(p, s) {
		j.tellable(ref.UID)
	}
	if errors.Is(err, offline.ErrFull) {
		j.events.Warning(ref, reasonNotJournaled, "it may start again after a reboot without network: "+err.Error())
		return nil
	}
	return err
}

// mayTell says whether the API server may hear a pod's status. The end by a
// shutdown comes to the disk only once it has (cluster.heard).
func (j *journaled) mayTell(p *v1.Pod, s *v1.PodStatus) bool {
	if pod.IsStatic(p) || !terminal(s.Phase) || endedByShutdown(s) || j.store.IsTerminal(p.UID) {
		return true
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.unkept[p.UID]
}

func terminal(phase v1.PodPhase) bool { return phase == v1.PodSucceeded || phase == v1.PodFailed }

// Forget implements podworker.Syncer.
func (j *journaled) Forget(ctx context.Context, ref pod.Ref) error {
	if err := j.Syncer.Forget(ctx, ref); err != nil {
		return err
	}
	j.mu.Lock()
	delete(j.unkept, ref.UID)
	j.mu.Unlock()
	err := j.store.Forget(ctx, ref.UID)
	if errors.Is(err, offline.ErrFull) {
		return nil // it is forgotten here, and on the disk with the next write
	}
	return err
}
