package cri

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestTrace(t *testing.T) {
	const service = "/runtime.v1.RuntimeService/"
	var out bytes.Buffer
	calls := func(level slog.Level) string {
		out.Reset()
		d := &Driver{log: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level}))}
		d.trace(t.Context(), service+"RunPodSandbox", &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
			Metadata: &runtimeapi.PodSandboxMetadata{Uid: "u1"},
		}}, &runtimeapi.RunPodSandboxResponse{PodSandboxId: "s1"}, 2*time.Second)
		d.trace(t.Context(), service+"CreateContainer", &runtimeapi.CreateContainerRequest{PodSandboxId: "s1"}, &runtimeapi.CreateContainerResponse{ContainerId: "c1"}, time.Second)
		d.trace(t.Context(), service+"StartContainer", &runtimeapi.StartContainerRequest{ContainerId: "c1"}, &runtimeapi.StartContainerResponse{}, time.Second)
		d.trace(t.Context(), service+"Status", &runtimeapi.StatusRequest{}, nil, time.Millisecond) // it failed
		return out.String()
	}
	if text := calls(slog.LevelInfo); text != "" {
		t.Errorf("not for debugging: %s", text)
	}
	text := calls(slog.LevelDebug)
	for _, want := range []string{
		"call=RunPodSandbox took=2s podUID=u1 sandboxID=s1\n",
		"call=CreateContainer took=1s sandboxID=s1 containerID=c1\n",
		"call=StartContainer took=1s containerID=c1\n",
		"call=Status took=1ms\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}
