// Package inventory lists everything that a CRI runtime holds of pods, with
// the processes and the configs that it was started with, so that two agents'
// work can be compared.
package inventory

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Inventory is what the runtime holds, ordered by pod, name and attempt.
type Inventory struct {
	Sandboxes  []Sandbox
	Containers []Container
}

// Sandbox is one pod sandbox.
type Sandbox struct {
	ID      string
	Pod     string // its name in metadata
	UID     string
	Attempt uint32
	Ready   bool
	IP      string
	PID     int
	// Config is the CRI PodSandboxConfig that it was started with.
	Config json.RawMessage
}

// Container is one container.
type Container struct {
	ID        string
	SandboxID string
	Pod       string // its sandbox's
	Name      string
	Attempt   uint32
	State     string // CRI's word without its prefix: RUNNING, EXITED
	ExitCode  int32
	PID       int // 0 if it does not run
	// Config is the CRI ContainerConfig that it was started with.
	Config json.RawMessage
}

// info is what containerd reports in addition to the status if verbose is set.
type info struct {
	PID    int             `json:"pid"`
	Config json.RawMessage `json:"config"`
}

func infoOf(values map[string]string) (info, error) {
	var i info
	if err := json.Unmarshal([]byte(values["info"]), &i); err != nil {
		return info{}, fmt.Errorf("read the runtime's info: %w", err)
	}
	return i, nil
}

// Read asks the runtime that listens on a unix socket. It blocks until all
// is answered.
func Read(ctx context.Context, socket string) (*Inventory, error) {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", socket, err)
	}
	defer conn.Close()
	client := runtimeapi.NewRuntimeServiceClient(conn)
	inv := &Inventory{}
	if inv.Sandboxes, err = sandboxes(ctx, client); err != nil {
		return nil, err
	}
	if inv.Containers, err = containers(ctx, client); err != nil {
		return nil, err
	}
	pods := make(map[string]string, len(inv.Sandboxes))
	for _, s := range inv.Sandboxes {
		pods[s.ID] = s.Pod
	}
	for i := range inv.Containers {
		inv.Containers[i].Pod = pods[inv.Containers[i].SandboxID]
	}
	slices.SortFunc(inv.Sandboxes, func(a, b Sandbox) int {
		return cmp.Or(cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Attempt, b.Attempt))
	})
	slices.SortFunc(inv.Containers, func(a, b Container) int {
		return cmp.Or(cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Attempt, b.Attempt))
	})
	return inv, nil
}

func sandboxes(ctx context.Context, client runtimeapi.RuntimeServiceClient) ([]Sandbox, error) {
	list, err := client.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", err)
	}
	out := make([]Sandbox, 0, len(list.GetItems()))
	for _, item := range list.GetItems() {
		resp, err := client.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: item.GetId(), Verbose: true})
		if status.Code(err) == codes.NotFound { // removed meanwhile
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("status of sandbox %s: %w", item.GetId(), err)
		}
		i, err := infoOf(resp.GetInfo())
		if err != nil {
			return nil, fmt.Errorf("sandbox %s: %w", item.GetId(), err)
		}
		s := resp.GetStatus()
		out = append(out, Sandbox{
			ID: s.GetId(), Pod: s.GetMetadata().GetName(), UID: s.GetMetadata().GetUid(), Attempt: s.GetMetadata().GetAttempt(),
			Ready: s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY,
			IP:    s.GetNetwork().GetIp(), PID: i.PID, Config: i.Config,
		})
	}
	return out, nil
}

func containers(ctx context.Context, client runtimeapi.RuntimeServiceClient) ([]Container, error) {
	list, err := client.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	out := make([]Container, 0, len(list.GetContainers()))
	for _, item := range list.GetContainers() {
		resp, err := client.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: item.GetId(), Verbose: true})
		if status.Code(err) == codes.NotFound { // removed meanwhile
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("status of container %s: %w", item.GetId(), err)
		}
		i, err := infoOf(resp.GetInfo())
		if err != nil {
			return nil, fmt.Errorf("container %s: %w", item.GetId(), err)
		}
		s := resp.GetStatus()
		out = append(out, Container{
			ID: s.GetId(), SandboxID: item.GetPodSandboxId(), Name: s.GetMetadata().GetName(), Attempt: s.GetMetadata().GetAttempt(),
			State: stateName(s.GetState()), ExitCode: s.GetExitCode(), PID: i.PID, Config: i.Config,
		})
	}
	return out, nil
}

func stateName(s runtimeapi.ContainerState) string {
	return s.String()[len("CONTAINER_"):]
}
