package agent

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
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
	// reportTimeout bounds the wait for the API server to receive the final statuses.
	reportTimeout = 5 * time.Second
	// shutdownMargin is added to the grace periods of the pods.
	shutdownMargin = 10 * time.Second
	// flagName is the name of the shutdown flag, a file in the directory of the socket.
	flagName = "shutdown"
)

// runFolder returns the directory of files that a reboot removes.
func runFolder(cfg *config.Config) string {
	return filepath.Dir(cmp.Or(cfg.Tinylet.SocketPath, local.DefaultSocketPath))
}

// assembleShutdown builds the graceful node shutdown.
func (a *agent) assembleShutdown() error {
	a.shutdownFlag = filepath.Join(runFolder(a.cfg), flagName)
	a.shutdown = shutdown.New(shutdown.Config{
		Periods: shutdown.Periods(&a.cfg.Kubelet),
		Pods:    a.unfinishedPods,
		End: func(pd *v1.Pod, grace time.Duration) {
			// A terminating pod has a reason of its own.
			if state, ok := a.workers.State(pd.UID); ok && state != podworker.Terminating {
				a.syncer.Evict(pd.UID, podstatus.Reason{Reason: shutdown.ReasonEnded, Message: shutdown.MessageEnded})
			}
			a.workers.TerminatePod(pd.UID, grace)
		},
		Ended: a.isTerminated,
		Changed: func() {
			if a.cluster != nil {
				a.cluster.registrar.Trigger()
			}
		},
		Events: a.events, FlagFile: a.shutdownFlag, Log: a.log,
	})
	return nil
}

// isTerminated reports whether no process and no mount of a pod is left.
func (a *agent) isTerminated(uid types.UID) bool {
	state, ok := a.workers.State(uid)
	return !ok || state == podworker.Terminated
}

// unfinishedPods returns the pods that are not terminated.
func (a *agent) unfinishedPods() []*v1.Pod {
	var pods []*v1.Pod
	for _, e := range a.statuses.List() {
		if !a.isTerminated(e.Pod.UID) {
			pods = append(pods, e.Pod)
		}
	}
	return pods
}

// stop cancels the tasks once ctx has ended: at once, or for a node shutdown after the pods are
// terminated.
func (a *agent) stop(ctx, tasks context.Context, cancelTasks context.CancelFunc) {
	defer cancelTasks()
	select {
	case <-ctx.Done():
		close(a.stopping)
	case <-tasks.Done():
		return
	}
	if !a.shutdown.Requested() {
		return
	}
	a.log.Info("node shutdown requested", "flag", a.shutdownFlag)
	limited, cancel := context.WithTimeout(tasks, a.shutdown.Time()+shutdownMargin)
	defer cancel()
	switch err := a.shutDown(limited); {
	case errors.Is(err, shutdown.ErrOff):
		a.log.Info("graceful node shutdown is disabled: shutdownGracePeriod is 0")
	case err != nil:
		a.log.Warn("pods did not terminate before the shutdown", "error", err)
	}
}

// shutDown terminates the pods. It blocks until they are terminated and the API server, if it
// responds, has received their final statuses.
func (a *agent) shutDown(ctx context.Context) error {
	if err := a.shutdown.Shutdown(ctx); err != nil {
		return err
	}
	if a.cluster == nil {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	a.cluster.reporter.AwaitTerminal(limited, func() (waiting []types.UID) {
		for _, e := range a.statuses.List() {
			if shutdown.Terminated(e.Status) && !pod.IsStatic(e.Pod) {
				waiting = append(waiting, e.Pod.UID)
			}
		}
		return waiting
	})
	return nil
}
