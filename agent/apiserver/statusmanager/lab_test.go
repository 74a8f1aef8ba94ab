package statusmanager_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/apiserver/statusmanager"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/wait"
)

// lab is a Reporter between a server and an agent's pods, in virtual time.
type lab struct {
	*server
	reporter *statusmanager.Manager
	changed  chan struct{}
	log      *logs

	// state is the agent's side.
	state   sync.Mutex
	entries []pod.Entry
	done    map[types.UID]bool
	gone    bool
	nodeUID types.UID

	quiet bool // the pod source does not speak yet
	stop  func()
}

// logs keeps the log.
type logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// count returns how often the log contains the text.
func (l *logs) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), text)
}

// inLab runs a test in virtual time. Nothing runs before start.
func inLab(t *testing.T, test func(t *testing.T, l *lab)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &lab{server: newServer(t), changed: make(chan struct{}, 1), log: &logs{}, done: map[types.UID]bool{}, nodeUID: "node-uid"}
		test(t, l)
		if l.stop != nil {
			l.stop()
		}
		l.check()
	})
}

// start replaces the current Reporter by a new one.
func (l *lab) start(change ...func(*statusmanager.Config)) {
	if l.stop != nil {
		l.stop()
	}
	c := statusmanager.Config{
		API: l.server, Trigger: wait.NewWakeup(), NodeName: "node", Changed: l.changed, Log: slog.New(slog.NewTextHandler(l.log, nil)),
		List: func() []pod.Entry {
			l.state.Lock()
			defer l.state.Unlock()
			return slices.Clone(l.entries)
		},
		Done: func(uid types.UID) bool {
			l.state.Lock()
			defer l.state.Unlock()
			return l.done[uid]
		},
		NodeUID: func() types.UID {
			l.state.Lock()
			defer l.state.Unlock()
			return l.nodeUID
		},
		StaticGone: func(string, string) bool {
			l.state.Lock()
			defer l.state.Unlock()
			return l.gone
		},
	}
	for _, f := range change {
		f(&c)
	}
	l.reporter = statusmanager.New(c)
	ctx, cancel := context.WithCancelCause(context.Background())
	cause, ended := errors.New("the test is over"), make(chan error, 1)
	go func() { ended <- l.reporter.Run(ctx) }()
	l.stop = func() {
		cancel(cause)
		if err := <-ended; !errors.Is(err, cause) {
			l.t.Errorf("Run returned %v", err)
		}
		l.stop = nil
	}
	if !l.quiet {
		l.watch(l.reporter.SetPods)
	}
}

// set adds a pod with a status to the agent's pods, or replaces it.
func (l *lab) set(p *v1.Pod, s *v1.PodStatus) {
	l.state.Lock()
	i := slices.IndexFunc(l.entries, func(e pod.Entry) bool { return e.Pod.UID == p.UID })
	if i < 0 {
		i, l.entries = len(l.entries), append(l.entries, pod.Entry{})
	}
	l.entries[i] = pod.Entry{Pod: p, Status: s}
	l.state.Unlock()
	l.change()
}

// unset removes the pod from the agent's pods.
func (l *lab) unset(p *v1.Pod) {
	l.state.Lock()
	l.entries = slices.DeleteFunc(l.entries, func(e pod.Entry) bool { return e.Pod.UID == p.UID })
	l.state.Unlock()
	l.change()
}

func (l *lab) change() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// with changes the agent's side and triggers a sync.
func (l *lab) with(f func()) {
	l.state.Lock()
	f()
	l.state.Unlock()
	l.reporter.Trigger.Set()
}

// after sleeps for d and then waits until all goroutines are blocked.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// wants checks which requests were made after the first n: "verb name".
func (l *lab) wants(n int, want ...string) {
	l.t.Helper()
	synctest.Wait()
	var got []string
	for _, c := range l.since(n) {
		got = append(got, c.Verb+" "+c.Name)
	}
	if !slices.Equal(got, want) {
		l.t.Errorf("requests %q, want %q", got, want)
	}
}

// apiPod is a pod that the scheduler gave to this node.
func apiPod(name string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "n", Generation: 1},
		Spec:       v1.PodSpec{NodeName: "node", RestartPolicy: v1.RestartPolicyNever, Containers: []v1.Container{{Name: "a"}}},
		Status: v1.PodStatus{
			Phase: v1.PodPending, QOSClass: v1.PodQOSBestEffort,
			Conditions: []v1.PodCondition{{Type: v1.PodScheduled, Status: "True", LastTransitionTime: hour}},
		},
	}
}

// staticPod is a pod of a manifest.
func staticPod(name, hash string) *v1.Pod {
	p := apiPod(name)
	p.UID, p.Generation, p.Status = types.UID("static-"+hash), 0, v1.PodStatus{}
	p.Spec.RestartPolicy = v1.RestartPolicyAlways
	p.Annotations = map[string]string{pod.AnnotationHash: hash, pod.AnnotationSource: pod.SourceFile}
	return p
}

// deleted is the pod as it is after kubectl delete.
func deleted(p *v1.Pod) *v1.Pod {
	p = p.DeepCopy()
	at, grace := metav1.Now(), int64(30)
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &at, &grace
	return p
}

// restarted is a status after n restarts, which neither phase nor readiness
// tell of.
func restarted(n int) *v1.PodStatus {
	s := running()
	s.ContainerStatuses[0].RestartCount = int32(n)
	return s
}

// over is the status of a pod that succeeded.
func over() *v1.PodStatus {
	s := running()
	s.Phase = v1.PodSucceeded
	s.ContainerStatuses[0].State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ContainerID: "containerd://1"}}
	s.ContainerStatuses[0].Ready = false
	for i := range s.Conditions[1:] {
		s.Conditions[1+i].Status, s.Conditions[1+i].Reason = "False", "PodCompleted"
	}
	return s
}
