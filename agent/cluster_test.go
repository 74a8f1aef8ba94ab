package agent

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/apiserver/identity"
	"github.com/tinylet/tinylet/agent/node/nodeinfo"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/source"
)

// Who labels a node lets pods follow in the same second: a pod of the API
// server is not refused by what the agent knew before.
func TestLabelsAreReadAnewBeforeAPodIsRefused(t *testing.T) {
	for _, row := range []struct {
		name  string
		label string // what the API server answers
		want  v1.PodPhase
	}{
		{"the label is there", "cellar", v1.PodRunning},
		{"another label is there", "attic", v1.PodFailed},
	} {
		t.Run(row.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, l *lab) {
				l.start()
				l.settle(time.Second) // the loop has read these functions for the last time without a pod
				var node atomic.Pointer[nodeinfo.Admission]
				node.Store(l.agent.syncer.AdmitNode())
				var asked atomic.Int32
				var there atomic.Bool
				l.agent.syncer.AdmitNode = node.Load
				l.agent.syncer.ConfirmNode = func(context.Context) error {
					asked.Add(1)
					if !there.Load() {
						return errors.New("no route to host")
					}
					n := *node.Load()
					n.Labels = map[string]string{"room": row.label}
					node.Store(&n)
					return nil
				}
				p := shell(t, "web", "Always", "sleep 100000")
				delete(p.Annotations, pod.AnnotationSource)
				p.Spec.NodeSelector = map[string]string{"room": "cellar"}
				l.done.Go(func() { l.agent.mux.Set(t.Context(), pod.SourceAPI, source.PodSet{Pods: []*v1.Pod{p}}) })
				l.settle(30 * time.Second)
				if got := l.status(p.UID); got.Phase != v1.PodPending || asked.Load() < 2 {
					t.Errorf("without an answer the pod is %s (%s), asked %d times", got.Phase, got.Reason, asked.Load())
				}
				there.Store(true)
				asked.Store(0)
				l.settle(time.Minute)
				if got := l.status(p.UID); got.Phase != row.want || asked.Load() != 1 {
					t.Errorf("the pod is %s (%s %s), asked %d times", got.Phase, got.Reason, got.Message, asked.Load())
				}
			})
		})
	}
}

// TestOnceJoinedEnds ends a task that waits for a client of the API server.
func TestOnceJoinedEnds(t *testing.T) {
	id, err := identity.New(identity.Config{Kubeconfig: "none", PKI: "none", NodeName: "a", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	task := (&cluster{identity: id}).onceJoined("join", func() { t.Error("it counts as joined") })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := task.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}
