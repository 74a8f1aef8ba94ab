package offline

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/agent/store/journal"
	"github.com/tinylet/tinylet/agent/store/tpmkey"
)

// ReasonNotJournaled is the reason of events about pods that would not be restored after a
// reboot without network.
const ReasonNotJournaled = "FailedJournal"

// State is the state of the journal.
type State string

// The states.
const (
	StateSealed State = "sealed"
	StatePlain  State = "plain"
	StateOff    State = "off"  // by configuration
	StateNone   State = "none" // no key, or it cannot be opened
)

// Journal is the journal as TinyletConfiguration sets it up.
type Journal struct {
	// Store is nil if nothing is stored.
	Store *Store
	State State

	dir    string
	remedy string // what the operator must do; "" means nothing
}

const (
	remedyUnsealed = "the Secrets of the cluster's pods are stored unencrypted: set journalKeyTPMFile or another key in TinyletConfiguration and run `tinylet journal-key --migrate`, or set journal: off"
	remedyNoKey    = "pods of the API server are not stored for a reboot without network: journal is sealed, and no key is configured: set journalKeyTPMFile, journalKeyFile or journalKeyring"
)

// SetupConfig configures Setup.
type SetupConfig struct {
	// Dir is the directory of the journal.
	Dir     string
	Tinylet *config.TinyletConfiguration
	// Contacted, MayRead and Started are as in Config.
	Contacted, MayRead func() bool
	Started            func(types.UID) *metav1.Time
	Events             *event.Recorder
	Log                *slog.Logger
}

// Setup opens the journal as TinyletConfiguration requires. If the journal cannot be
// opened, the agent runs without it, and Remedy returns the reason. The only error is that
// another process has the journal open: journal.ErrLocked.
func Setup(c SetupConfig) (*Journal, error) {
	j := &Journal{dir: c.Dir, State: StateNone}
	if c.Tinylet.Journal == config.JournalOff {
		j.State = StateOff
		j.removeFormer(c.Log)
		return j, nil
	}
	if c.Tinylet.Journal == config.JournalSealed && !c.Tinylet.HasJournalKey() {
		j.remedy = remedyNoKey
		c.Log.Warn("journal has no key, pods are not stored", "remedy", "set journalKeyTPMFile, journalKeyFile or journalKeyring")
		c.Events.Warning(pod.Ref{}, ReasonNotJournaled, remedyNoKey)
		return j, nil
	}
	key, anchor := Sources(c.Tinylet, tpmkey.Device)
	store, err := Open(Config{
		Dir: c.Dir, Key: key, Anchor: anchor, Contacted: c.Contacted, MayRead: c.MayRead, Started: c.Started, Log: c.Log,
	})
	if errors.Is(err, journal.ErrLocked) {
		return nil, err
	}
	if err != nil {
		c.Log.Error("cannot open the journal of pods", "effect", "pods are not restored after a reboot without network", "error", err)
		c.Events.Warning(pod.Ref{}, ReasonNotJournaled, err.Error())
		j.remedy = "pods of the API server are not stored for a reboot without network: " + err.Error()
		return j, nil
	}
	j.Store, j.State = store, StateSealed
	if key == nil {
		j.State, j.remedy = StatePlain, remedyUnsealed
		c.Log.Warn("journal is not sealed", "remedy", "set journalKeyTPMFile, journalKeyFile or journalKeyring, or journal: off")
	}
	if err := store.QuarantineReason(); err != nil {
		j.remedy = err.Error()
		c.Events.Warning(pod.Ref{}, ReasonNotJournaled, err.Error())
	}
	return j, nil
}

// removeFormer removes the journal of an earlier configuration.
func (j *Journal) removeFormer(log *slog.Logger) {
	removed, err := Remove(j.dir)
	if err != nil {
		j.remedy = fmt.Sprintf("journal is off, and the former one could not be removed: %v: remove %s", err, j.dir)
		log.Error("cannot remove former journal", "error", err, "remedy", "remove "+j.dir)
		return
	}
	if removed {
		log.Info("removed former journal", "dir", j.dir)
	}
}

// Quarantined returns the directories of quarantined journals, the newest first.
func (j *Journal) Quarantined() []string { return Quarantined(j.dir) }

// Remedy returns what the operator must do, or "".
func (j *Journal) Remedy() string {
	aside := j.Quarantined()
	if len(aside) == 0 || j.Store != nil && j.Store.QuarantineReason() != nil {
		return j.remedy
	}
	remove := "journals that were moved aside are on the disk, with their Secrets: remove those that you do not need: " + strings.Join(aside, " ")
	if j.remedy == "" {
		return remove
	}
	return j.remedy + "; " + remove
}
