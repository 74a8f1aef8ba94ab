package criserver

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
)

// Stats is a runtime with the usage of what it runs. The agent itself reads the cgroups and
// does not need it. Its methods return the errors of package container.
type Stats interface {
	ContainerStats(ctx context.Context, id string) (*runtimeapi.ContainerStats, error)
	PodSandboxStats(ctx context.Context, id string) (*runtimeapi.PodSandboxStats, error)
}

var errNoStats = status.Error(codes.Unimplemented, "the runtime has no stats")

func (s *service) ContainerStats(ctx context.Context, r *runtimeapi.ContainerStatsRequest) (*runtimeapi.ContainerStatsResponse, error) {
	if s.stats == nil {
		return nil, errNoStats
	}
	stats, err := s.stats.ContainerStats(ctx, s.containerID(ctx, r.GetContainerId()))
	return &runtimeapi.ContainerStatsResponse{Stats: stats}, grpcError(err)
}

func (s *service) ListContainerStats(ctx context.Context, r *runtimeapi.ListContainerStatsRequest) (*runtimeapi.ListContainerStatsResponse, error) {
	if s.stats == nil {
		return nil, errNoStats
	}
	f := r.GetFilter()
	list, err := s.rt.ListContainers(ctx, &runtimeapi.ContainerFilter{
		Id: s.containerID(ctx, f.GetId()), PodSandboxId: s.sandboxID(ctx, f.GetPodSandboxId()), LabelSelector: f.GetLabelSelector(),
	})
	if err != nil {
		return nil, grpcError(err)
	}
	out := &runtimeapi.ListContainerStatsResponse{}
	for _, c := range list {
		stats, err := s.stats.ContainerStats(ctx, c.GetId())
		if errors.Is(err, container.ErrNotFound) {
			continue // it was removed meanwhile
		}
		if err != nil {
			return nil, grpcError(err)
		}
		out.Stats = append(out.Stats, stats)
	}
	return out, nil
}

func (s *service) PodSandboxStats(ctx context.Context, r *runtimeapi.PodSandboxStatsRequest) (*runtimeapi.PodSandboxStatsResponse, error) {
	if s.stats == nil {
		return nil, errNoStats
	}
	stats, err := s.stats.PodSandboxStats(ctx, s.sandboxID(ctx, r.GetPodSandboxId()))
	return &runtimeapi.PodSandboxStatsResponse{Stats: stats}, grpcError(err)
}

func (s *service) ListPodSandboxStats(ctx context.Context, r *runtimeapi.ListPodSandboxStatsRequest) (*runtimeapi.ListPodSandboxStatsResponse, error) {
	if s.stats == nil {
		return nil, errNoStats
	}
	f := r.GetFilter()
	list, err := s.rt.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{Id: s.sandboxID(ctx, f.GetId()), LabelSelector: f.GetLabelSelector()})
	if err != nil {
		return nil, grpcError(err)
	}
	out := &runtimeapi.ListPodSandboxStatsResponse{}
	for _, p := range list {
		stats, err := s.stats.PodSandboxStats(ctx, p.GetId())
		if errors.Is(err, container.ErrNotFound) {
			continue // it was removed meanwhile
		}
		if err != nil {
			return nil, grpcError(err)
		}
		out.Stats = append(out.Stats, stats)
	}
	return out, nil
}
