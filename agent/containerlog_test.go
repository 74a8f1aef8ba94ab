package agent

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/node/nodeinfo/nodeinfotest"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/server"
)

// container is the status of a pod's container on the lab, and its ID.
func (l *lab) container(p *v1.Pod, name string) (c *v1.ContainerStatus, id string) {
	l.t.Helper()
	st := l.status(p.UID)
	for i := range st.ContainerStatuses {
		if c := &st.ContainerStatuses[i]; c.Name == name && pod.ContainerID(c) != "" {
			return c, pod.ContainerID(c)
		}
	}
	l.t.Fatalf("container %s is not known: %+v", name, st)
	return nil, ""
}

// logs finds the logs of the running agent's containers; the runtime has not reported its cgroup
// driver to it.
func (l *lab) logs() *server.ContainerLogs {
	return &server.ContainerLogs{Runtime: l.runtime, Statuses: l.agent.statuses, Node: nodeinfotest.New(l.t, l.cfg, "").Peek}
}

func TestWhereALogIs(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		p := shell(t, "web", "Always", "sleep infinity")
		l.want(p)
		l.start()
		l.settle(5 * time.Second)
		c, id := l.container(p, "c0")
		at := l.logs()
		q := server.LogQuery{Pod: p, Container: "c0", ID: id}

		file, err := at.Find(t.Context(), q)
		if err != nil || !strings.HasPrefix(file.Path, l.cfg.Paths.PodLogs) || file.Ended != nil {
			t.Fatalf("the runtime tells %+v, %v", file, err)
		}
		unknown := q
		unknown.ID = "other"
		if file, err := at.Find(t.Context(), unknown); !errors.Is(err, container.ErrNotFound) || file.Path != "" {
			t.Errorf("of a container that nobody knows: %+v, %v", file, err)
		}

		l.runtime.Stop()
		told := file.Path
		if file, err := at.Find(t.Context(), q); !errors.Is(err, container.ErrUnavailable) || file.Path != "" {
			t.Errorf("no runtime has told anything yet: %+v, %v", file, err)
		}
		at.Node = nodeinfotest.New(t, l.cfg, criconfig.DriverCgroupfs).Peek
		if file, err := at.Find(t.Context(), q); err != nil || file.Path != told {
			t.Errorf("while the runtime is away: %+v, %v; it told %s", file, err, told)
		}
		// Where the log of an attempt before is, only the runtime knows.
		unknown.ID = "earlier-" + pod.ContainerID(c)
		if file, err := at.Find(t.Context(), unknown); err == nil {
			t.Errorf("another attempt's log is at %+v", file)
		}
		unknown = q
		unknown.Pod = &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "other"}}
		if file, err := at.Find(t.Context(), unknown); err == nil {
			t.Errorf("the log of a pod that nobody knows is at %+v", file)
		}
		l.runtime.Start()
	})
}

func TestFollowingEndsWithTheContainer(t *testing.T) {
	isClosed := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	bubble(t, func(t *testing.T, l *lab) {
		p, other := shell(t, "web", "Never", "sleep infinity"), shell(t, "other", "Always", "exit 1")
		l.want(p, other)
		l.start()
		l.settle(5 * time.Second)
		_, id := l.container(p, "c0")
		at := l.logs()
		q := server.LogQuery{Pod: p, Container: "c0", ID: id, Follow: true}
		file, err := at.Find(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		left, cancel := context.WithCancel(t.Context())
		abandoned, err := at.Find(left, q)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		l.settle(time.Minute) // another pod's changes wake it meanwhile
		if isClosed(file.Ended) || isClosed(abandoned.Ended) {
			t.Fatal("the container is said to have ended")
		}
		// An attempt before this one has ended.
		q.ID = "earlier"
		q.Follow = true
		former, err := at.Find(t.Context(), q)
		if err == nil {
			l.settle(time.Second)
		}
		if err == nil && !isClosed(former.Ended) {
			t.Error("a container that has ended is followed")
		}
		if !l.runtime.ExitContainer(id, 0) {
			t.Fatal("the container does not run")
		}
		l.settle(5 * time.Second)
		if !isClosed(file.Ended) {
			t.Error("nobody was told that the container has ended")
		}
		if isClosed(abandoned.Ended) {
			t.Error("who has left was waited for")
		}
	})
}
