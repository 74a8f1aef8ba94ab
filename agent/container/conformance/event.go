package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/wait"
)

// subscriber collects the events of a stream.
type subscriber struct {
	w      *testEnv
	cancel context.CancelFunc
	done   chan error

	mu   sync.Mutex
	seen map[string]bool // uid/id/type
}

// subscribe subscribes and returns once the stream works. The stream carries the
// events of all pods; those of other tests are ignored.
func (w *testEnv) subscribe() *subscriber {
	w.Helper()
	ctx, cancel := context.WithCancel(w.Context())
	l := &subscriber{w: w, cancel: cancel, done: make(chan error, 1), seen: map[string]bool{}}
	connected := make(chan struct{})
	go func() {
		l.done <- w.Runtime.ContainerEvents(ctx, func() { close(connected) }, l.handle)
	}()
	select {
	case <-connected:
	case err := <-l.done:
		cancel()
		w.Fatalf("ContainerEvents: %v", err)
	case <-time.After(w.Timeout):
		cancel()
		w.Fatal("ContainerEvents does not connect")
	}
	w.Cleanup(cancel)
	return l
}

func (l *subscriber) handle(e *runtimeapi.ContainerEventResponse) {
	uid := e.GetPodSandboxStatus().GetMetadata().GetUid()
	if uid == "" {
		uid = e.GetPodSandboxStatus().GetLabels()[container.LabelPodUID]
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen[key(uid, e.GetContainerId(), e.GetContainerEventType())] = true
}

func key(uid, id string, kind runtimeapi.ContainerEventType) string {
	return fmt.Sprintf("%v of %s in pod %s", kind, id, uid)
}

func (l *subscriber) has(uid, id string, kind runtimeapi.ContainerEventType) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen[key(uid, id, kind)]
}

func (l *subscriber) want(p *pod, id string, kinds ...runtimeapi.ContainerEventType) {
	l.w.Helper()
	for _, kind := range kinds {
		l.w.eventually("event "+key(p.uid, id, kind), func() error {
			if !l.has(p.uid, id, kind) {
				return errors.New("it has not come")
			}
			return nil
		})
	}
}

const (
	created = runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT
	started = runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT
	stopped = runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT
	deleted = runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT
)

func testEvents(w *testEnv) {
	l := w.subscribe()
	w.provoke(l)
	p := w.runPod()
	l.want(p, p.id, created, started)
	id := p.start("main", `exit 3`)
	l.want(p, id, created, started, stopped)
	w.ok("RemoveContainer", w.Runtime.RemoveContainer(w.Context(), id))
	l.want(p, id, deleted)

	last := p.start("last", scriptForever)
	w.ok("StopPodSandbox", w.Runtime.StopPodSandbox(w.Context(), p.id))
	l.want(p, last, stopped)
	l.want(p, p.id, stopped)
	w.ok("RemovePodSandbox", w.Runtime.RemovePodSandbox(w.Context(), p.id))
	l.want(p, last, deleted)
	// containerd 1.7 forgets the sandbox before it sends the event, and so
	// cannot name the pod: the subscriber must know the owner.
	w.eventually("event "+key(p.uid, p.id, deleted), func() error {
		if !l.has(p.uid, p.id, deleted) && !l.has("", p.id, deleted) {
			return errors.New("it has not come")
		}
		return nil
	})

	l.cancel()
	select {
	case err := <-l.done:
		if !errors.Is(err, context.Canceled) {
			w.Errorf("the cancelled stream ended with %v", err)
		}
	case <-time.After(w.Timeout):
		w.Error("the cancelled stream does not end")
	}
}

func testEventsReconnect(w *testEnv) {
	first := w.subscribe()
	first.cancel()
	<-first.done
	second := w.subscribe()
	w.provoke(second)
	p := w.runPod()
	second.want(p, p.id, created, started)
}

// provoke causes events until one arrives: a runtime may lose a few to streams
// that are gone (containerd 1.7 does), but not for ever.
func (w *testEnv) provoke(l *subscriber) {
	w.Helper()
	p := w.runPod()
	for attempt := range 20 {
		c := p.containerConfig("provoke", `exit 0`)
		c.Metadata.Attempt = uint32(attempt)
		id := p.create(c)
		for range 20 {
			if l.has(p.uid, id, created) {
				return
			}
			wait.Pause(w.Context(), w.Timeout/200)
		}
	}
	w.Fatal("no event comes over the stream")
}

func testRestart(w *testEnv) {
	if w.Restart == nil {
		w.Skip("this environment cannot restart the runtime")
	}
	p := w.runPod()
	forever := p.start("forever", scriptForever)
	ends := p.start("ends", `sleep 1; exit 4`)
	idle := p.create(p.containerConfig("idle", scriptForever))
	l := w.subscribe()
	before := w.status(forever)

	w.Restart(w.T)

	if !w.OwnEvents {
		select {
		case err := <-l.done:
			if !errors.Is(err, container.ErrUnavailable) {
				w.Errorf("the stream ended with %v, want ErrUnavailable", err)
			}
		case <-time.After(w.Timeout):
			w.Error("the stream survived the runtime's restart")
		}
	}
	w.eventually("the runtime's return", func() error {
		_, err := w.Runtime.Version(w.Context())
		return err
	})
	after := w.status(forever)
	if after.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING || after.GetStartedAt() != before.GetStartedAt() {
		w.Errorf("the running container is %v, started %d, was started %d", after.GetState(), after.GetStartedAt(), before.GetStartedAt())
	}
	// containerd loses the exit code of a process that exits while it is down
	// (core/runtime/v2/shim_load.go cleans up a shim without processes).
	if s := w.waitExited(ends); s.GetExitCode() != 4 && (s.GetExitCode() != 255 || s.GetReason() != "Unknown") {
		w.Errorf("the container that ended has code %d and reason %q, want 4, or 255 and Unknown", s.GetExitCode(), s.GetReason())
	}
	w.ok("StartContainer of one that was created before", w.Runtime.StartContainer(w.Context(), idle))

	again := w.subscribe()
	w.provoke(again)
	w.ok("StopContainer", w.Runtime.StopContainer(w.Context(), forever, 0))
	again.want(p, forever, stopped)
}
