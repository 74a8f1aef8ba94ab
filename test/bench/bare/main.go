// Command bare starts and stops pods through CRI and does nothing else: no
// watch, no status, no volumes. What it takes is the floor for every agent on
// the same runtime. It runs on a board and prints JSON.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/test/bench/round"
)

func main() {
	socket := flag.String("socket", "/run/containerd/containerd.sock", "the runtime's unix socket")
	image := flag.String("image", "", "image of the containers")
	pods := flag.Int("pods", 1, "how many pods start at once")
	rounds := flag.Int("rounds", 1, "how often they start and stop")
	flag.Parse()
	if err := run(*socket, *image, *pods, *rounds, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "bare:", err)
		os.Exit(1)
	}
}

func run(socket, image string, pods, rounds int, command []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("connect to %s: %w", socket, err)
	}
	defer conn.Close()
	b := bare{client: runtimeapi.NewRuntimeServiceClient(conn), image: image, command: command}
	var out []round.Times
	for n := range rounds {
		t, err := b.round(ctx, n, pods)
		if err != nil {
			return err
		}
		out = append(out, t)
	}
	return json.NewEncoder(os.Stdout).Encode(out)
}

// bare makes pods of one container each.
type bare struct {
	client  runtimeapi.RuntimeServiceClient
	image   string
	command []string
}

// running is a pod that runs.
type running struct{ sandbox, container string }

// round starts pods at once, stops them at once, and removes them.
func (b bare) round(ctx context.Context, number, count int) (round.Times, error) {
	pods := make([]running, count)
	starts, err := atOnce(count, func(i int) error {
		var err error
		pods[i], err = b.start(ctx, fmt.Sprintf("bare-%d-%d", number, i))
		return err
	})
	if err != nil {
		return round.Times{}, err
	}
	stops, err := atOnce(count, func(i int) error { return b.stop(ctx, pods[i]) })
	if err != nil {
		return round.Times{}, err
	}
	_, err = atOnce(count, func(i int) error { return b.remove(ctx, pods[i]) })
	return round.Times{Starts: starts, Stops: stops}, err
}

// atOnce does something for each pod and returns how long after the common
// start each was done.
func atOnce(count int, do func(int) error) ([]time.Duration, error) {
	took, errs := make([]time.Duration, count), make([]error, count)
	var wg sync.WaitGroup
	begin := time.Now()
	for i := range count {
		wg.Go(func() {
			errs[i] = do(i)
			took[i] = time.Since(begin)
		})
	}
	wg.Wait()
	return took, errors.Join(errs...)
}

// start starts a pod as an agent does for one without limits.
func (b bare) start(ctx context.Context, name string) (running, error) {
	config := &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "bare", Uid: name},
		Hostname:     name,
		LogDirectory: "/var/log/pods/bare_" + name,
		DnsConfig:    &runtimeapi.DNSConfig{},
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent: "/kubepods/besteffort/pod" + name,
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				NamespaceOptions: namespaces(),
				Seccomp:          &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
			},
		},
	}
	if err := os.MkdirAll(config.LogDirectory+"/main", 0o755); err != nil {
		return running{}, err
	}
	sandbox, err := b.client.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
	if err != nil {
		return running{}, fmt.Errorf("run sandbox %s: %w", name, err)
	}
	p := running{sandbox: sandbox.GetPodSandboxId()}
	container, err := b.client.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: p.sandbox, SandboxConfig: config,
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "main"},
			Image:    &runtimeapi.ImageSpec{Image: b.image}, Command: b.command,
			LogPath: "main/0.log",
			Linux: &runtimeapi.LinuxContainerConfig{
				Resources: &runtimeapi.LinuxContainerResources{CpuShares: 2, OomScoreAdj: 1000},
				SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
					NamespaceOptions: namespaces(),
					Seccomp:          &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined},
				},
			},
		},
	})
	if err != nil {
		return p, fmt.Errorf("create container of %s: %w", name, err)
	}
	p.container = container.GetContainerId()
	if _, err := b.client.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: p.container}); err != nil {
		return p, fmt.Errorf("start container of %s: %w", name, err)
	}
	return p, nil
}

func namespaces() *runtimeapi.NamespaceOption {
	return &runtimeapi.NamespaceOption{
		Network: runtimeapi.NamespaceMode_POD, Pid: runtimeapi.NamespaceMode_CONTAINER, Ipc: runtimeapi.NamespaceMode_POD,
	}
}

// stop stops a pod, with the grace that pods have by default.
func (b bare) stop(ctx context.Context, p running) error {
	if _, err := b.client.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: p.container, Timeout: 30}); err != nil {
		return fmt.Errorf("stop container %s: %w", p.container, err)
	}
	if _, err := b.client.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.sandbox}); err != nil {
		return fmt.Errorf("stop sandbox %s: %w", p.sandbox, err)
	}
	return nil
}

// remove removes what a stopped pod has left in the runtime.
func (b bare) remove(ctx context.Context, p running) error {
	if _, err := b.client.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.sandbox}); err != nil {
		return fmt.Errorf("remove sandbox %s: %w", p.sandbox, err)
	}
	return nil
}
