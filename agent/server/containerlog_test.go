package server

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container/fake"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/pod/podtest"
	"github.com/tinylet/tinylet/agent/podworker/podstatus"
)

// A container whose runtime writes no log, as the API allows.
func TestNoLog(t *testing.T) {
	rt := fake.New(fake.Config{})
	rt.AddImage("busybox:1", fake.Program{})
	sandbox := &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Uid: "1", Name: "web", Namespace: "a"}}
	box, err := rt.RunPodSandbox(t.Context(), sandbox, "")
	if err != nil {
		t.Fatal(err)
	}
	id, err := rt.CreateContainer(t.Context(), box, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "app"}, Image: &runtimeapi.ImageSpec{Image: "busybox:1"}, Command: []string{"sh"},
	}, sandbox)
	if err != nil {
		t.Fatal(err)
	}
	p, _ := podtest.Mixed("web", "1", time.Unix(1e9, 0))
	file, err := (&ContainerLogs{Runtime: rt, Statuses: podstatus.NewStore()}).Find(t.Context(), LogQuery{Pod: p, Container: "app", ID: id, Follow: true})
	if !errors.Is(err, errNoLog) || file.Path != "" || file.Ended != nil {
		t.Errorf("%+v, %v", file, err)
	}
}

// A pod that is gone altogether does not run.
func TestFollowingEndsWithThePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		statuses := podstatus.NewStore()
		p, st := podtest.Mixed("web", "1", time.Unix(1e9, 0))
		statuses.Set(p, st, pod.Sandbox{ID: "sandbox"})
		ended := make(chan struct{})
		go (&ContainerLogs{Statuses: statuses}).closeAtExit(t.Context(), LogQuery{Pod: p, Container: "app", ID: "app-1"}, ended)
		synctest.Wait()
		statuses.Delete(p.UID)
		synctest.Wait()
		select {
		case <-ended:
		default:
			t.Error("nobody was told")
		}
	})
}
