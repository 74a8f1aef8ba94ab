package probe

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/agent/podworker/handler"
)

// call is one run of a probe's command as the fake saw it.
type call struct {
	At      time.Duration // since the lab's beginning
	Command string
}

// fakeExec answers commands by their first word.
type fakeExec struct {
	begun time.Time

	mu      sync.Mutex
	calls   []call
	answers map[string]answer
	flying  map[string]int
	overlap bool
}

// answer is how a command ends. With hang it ends with its context.
type answer struct {
	code int32
	err  error
	took time.Duration
	hang bool
}

func (f *fakeExec) ExecSync(ctx context.Context, _ string, cmd []string, timeout time.Duration) (stdout, stderr []byte, exitCode int32, err error) {
	f.mu.Lock()
	f.calls = append(f.calls, call{At: time.Since(f.begun), Command: cmd[0]})
	a := f.answers[cmd[0]]
	f.flying[cmd[0]]++
	f.overlap = f.overlap || f.flying[cmd[0]] > 1
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.flying[cmd[0]]--
		f.mu.Unlock()
	}()
	switch {
	case a.hang:
		<-ctx.Done()
		return nil, nil, 0, ctx.Err()
	case timeout > 0 && a.took > timeout:
		a.took, a.err = timeout, container.ErrTimeout
	}
	select {
	case <-ctx.Done():
		return nil, nil, 0, ctx.Err()
	case <-time.After(a.took):
	}
	return []byte("out of " + cmd[0]), nil, a.code, a.err
}

func (f *fakeExec) answer(command string, a answer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers[command] = a
}

// of are the times of a command's runs.
func (f *fakeExec) of(command string) []time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	var at []time.Duration
	for _, c := range f.calls {
		if c.Command == command {
			at = append(at, c.At)
		}
	}
	return at
}

// lab is a manager that runs in virtual time.
type lab struct {
	*Manager
	t      *testing.T
	exec   *fakeExec
	events *event.Recorder
	begun  time.Time
	cancel context.CancelCauseFunc
	ended  chan error

	mu      sync.Mutex
	changed map[types.UID]int
	saved   []byte
	saves   int
	saveErr error
}

// manager is another run of the agent, on what the last one saved.
func (l *lab) manager() *Manager {
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	l.mu.Lock()
	saved := l.saved
	l.mu.Unlock()
	return New(Config{
		Actions: handler.New(l.exec), Events: l.events, Log: log,
		ResultChanged: func(uid types.UID) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.changed[uid]++
		},
		SavedState: saved, BootID: "boot", Uptime: func() time.Duration { return time.Hour + time.Since(l.begun) },
		SaveState: func(data []byte) error {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.saves++
			if l.saveErr == nil {
				l.saved = data
			}
			return l.saveErr
		},
	})
}

func (l *lab) savesFail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.saveErr = err
}

func (l *lab) saveCount() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.saves
}

func (l *lab) savedNow() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.saved
}

// runs starts the manager.
func (l *lab) runs() {
	ctx, cancel := context.WithCancelCause(l.t.Context())
	l.cancel = cancel
	go func() { l.ended <- l.Run(ctx) }()
}

// killed ends the agent as kill -9 does, which saves nothing more.
func (l *lab) killed() {
	l.mu.Lock()
	saved := l.saved
	l.mu.Unlock()
	l.cancel(errEnd)
	<-l.ended
	l.mu.Lock()
	l.saved = saved
	l.mu.Unlock()
}

// again starts another run of the agent.
func (l *lab) again() {
	l.Manager = l.manager()
	l.runs()
}

var errEnd = errors.New("the test ends")

// inLab runs a test in a bubble and checks that everything ends with it.
func inLab(t *testing.T, test func(l *lab)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.NewTextHandler(io.Discard, nil))
		l := &lab{
			t: t, events: event.NewRecorder(log), begun: time.Now(), ended: make(chan error, 1),
			exec:    &fakeExec{begun: time.Now(), answers: map[string]answer{}, flying: map[string]int{}},
			changed: map[types.UID]int{},
		}
		l.again()
		test(l)
		l.cancel(errEnd)
		if err := <-l.ended; !errors.Is(err, errEnd) {
			t.Errorf("Run ended with %v", err)
		}
		if l.exec.overlap {
			t.Error("a probe was started while it was in flight")
		}
	})
}

func (l *lab) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (l *lab) changes(uid types.UID) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed[uid]
}

// has checks one container's result; Failed only by its kind.
func (l *lab) has(id string, started, ready bool, failed string) {
	l.t.Helper()
	got, ok := l.Results("uid")[id]
	if !ok || got.Started != started || got.Ready != ready || got.Failed != failed {
		l.t.Errorf("at %v: result of %s (there: %v) = started %v, ready %v, failed %q, want %v, %v, %q",
			time.Since(l.begun), id, ok, got.Started, got.Ready, got.Failed, started, ready, failed)
	}
}

// messages are the texts of all events, with their reasons.
func (l *lab) messages() []string {
	var out []string
	for _, e := range l.events.Recent() {
		out = append(out, e.Reason+": "+e.Message)
	}
	return out
}

// execProbe is a probe that runs a command every 10 s.
func execProbe(command string, change ...func(*v1.Probe)) *v1.Probe {
	p := &v1.Probe{
		ProbeHandler:  v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{command}}},
		PeriodSeconds: 10, TimeoutSeconds: 1, SuccessThreshold: 1, FailureThreshold: 3,
	}
	for _, f := range change {
		f(p)
	}
	return p
}

func delay(s int32) func(*v1.Probe)    { return func(p *v1.Probe) { p.InitialDelaySeconds = s } }
func period(s int32) func(*v1.Probe)   { return func(p *v1.Probe) { p.PeriodSeconds = s } }
func failures(n int32) func(*v1.Probe) { return func(p *v1.Probe) { p.FailureThreshold = n } }

// podOf is a pod with one main container, web.
func podOf(change func(c *v1.Container)) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", UID: "uid"},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "web"}}},
	}
	change(&p.Spec.Containers[0])
	return p
}

// running is an observation of containers that run, all begun at one time.
func running(startedAt time.Time, idsByName ...string) *container.Observed {
	o := &container.Observed{UID: "uid", Sandboxes: []container.Sandbox{{ID: "s", Ready: true, IPs: []string{"10.0.0.7"}}}}
	for i := 0; i < len(idsByName); i += 2 {
		o.Containers = append(o.Containers, container.Container{
			Name: idsByName[i], ID: idsByName[i+1], SandboxID: "s", State: container.StateRunning,
			CreatedAt: startedAt, StartedAt: startedAt,
		})
	}
	return o
}

// start shows the pod before and after its containers began.
func (l *lab) start(p *v1.Pod, idsByName ...string) {
	l.Observe(p, &container.Observed{UID: p.UID})
	l.Observe(p, running(time.Now(), idsByName...))
}

// fakeActions answers every probe at once.
type fakeActions struct{ result handler.Result }

func (f fakeActions) Probe(context.Context, *v1.ProbeHandler, handler.Target, time.Duration) (handler.Result, error) {
	return f.result, nil
}
