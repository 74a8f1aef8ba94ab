package native

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container/native/keeper"
	"github.com/tinylet/tinylet/agent/container/native/oci"
	"github.com/tinylet/tinylet/agent/container/native/store"
	"github.com/tinylet/tinylet/agent/wait"
)

// recover finds the sandboxes and containers of before. What an interrupted call or the last
// boot has left incomplete is finished or undone.
func (d *Driver) recover(ctx context.Context) error {
	records, err := d.Store.Records(ctx)
	if err != nil {
		return err
	}
	kept, err := d.kept(ctx)
	if err != nil {
		return err
	}
	for i := range records {
		if r := &records[i]; r.Sandbox != nil {
			if err := d.recoverSandbox(ctx, r, kept[r.ID]); err != nil {
				return fmt.Errorf("recover sandbox %s: %w", r.ID, err)
			}
		}
	}
	for i := range records {
		if r := &records[i]; r.Container != nil {
			if err := d.recoverContainer(ctx, r, kept[r.ID]); err != nil {
				return fmt.Errorf("recover container %s: %w", r.ID, err)
			}
		}
	}
	return d.sweep(ctx, kept)
}

// kept returns the keeper's containers by ID, when it starts none that an earlier driver has
// asked for.
func (d *Driver) kept(ctx context.Context) (map[string]keeper.Container, error) {
	limited, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		list, err := d.Keeper.List(limited)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(list, func(c keeper.Container) bool { return c.Phase == keeper.PhaseStarting }) {
			out := make(map[string]keeper.Container, len(list))
			for _, c := range list {
				out[c.ID] = c
			}
			return out, nil
		}
		if !wait.Pause(limited, 50*time.Millisecond) {
			return nil, fmt.Errorf("wait for containers that start: %w", cancelled(limited))
		}
	}
}

// recoverSandbox makes a sandbox of its record. One that was not completed, or is of an
// earlier boot, is not ready.
func (d *Driver) recoverSandbox(ctx context.Context, r *store.Record, k keeper.Container) error {
	s := &podSandbox{turn: newTurn(), id: r.ID, config: r.Sandbox, handler: r.Handler, created: r.CreatedAt}
	var state sandboxState
	err := loadState(d.sandboxDir(r.ID), &state)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	s.thisBoot = err == nil
	s.ready, s.ips = state.Ready, state.IPs
	if s.ready && sharedPID(s.config) {
		s.ready = k.Phase == keeper.PhaseRunning
	}
	switch {
	case k.ID == "":
	case s.ready:
		s.first = firstProcess{oci.Process{PID: k.PID, StartTime: k.StartTime}, make(chan struct{})}
		d.firsts[s.id] = s
	default:
		if err := d.discardKept(ctx, d.Handlers[s.handler], k.ID); err != nil {
			return err
		}
	}
	if !s.ready {
		// The network plugin may not be installed yet. Stopping the sandbox does it again.
		if err := d.dismantle(ctx, s); err != nil {
			d.Log.Warn("cannot clean up sandbox", "sandbox", s.id, "error", err)
		}
	}
	d.sandboxes[s.id] = s
	return d.reserve(sandboxName(s.config.GetMetadata()), s.id)
}

// recoverContainer makes a container of its record, its state and what the keeper has of it.
func (d *Driver) recoverContainer(ctx context.Context, r *store.Record, k keeper.Container) error {
	c := &podContainer{turn: newTurn(), id: r.ID, sandboxID: r.SandboxID, created: r.CreatedAt}
	s := d.sandboxes[r.SandboxID]
	if s == nil {
		return d.discard(ctx, c) // its sandbox was removed
	}
	c.name = containerName(r.Container.GetMetadata(), s.config.GetMetadata())
	var state containerState
	err := loadState(d.containerDir(r.ID), &state)
	if errors.Is(err, fs.ErrNotExist) && s.thisBoot {
		return d.discard(ctx, c) // its creation was interrupted
	}
	if errors.Is(err, fs.ErrNotExist) {
		return d.recoverAfterBoot(ctx, c, s, r)
	}
	if err != nil {
		return err
	}
	c.signal, c.stdin, c.stdinOnce, c.status = state.Signal, state.Stdin, state.StdinOnce, new(runtimeapi.ContainerStatus)
	if err := protojson.Unmarshal(state.Status, c.status); err != nil {
		return fmt.Errorf("decode status: %w", err)
	}
	d.containers[c.id] = c
	if err := d.reserve(c.name, c.id); err != nil {
		return err
	}
	switch {
	case c.status.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED:
		c.finish(*recorded(r))
	case k.Phase == keeper.PhaseRunning:
		c.ended, c.pid = make(chan struct{}), oci.Process{PID: k.PID, StartTime: k.StartTime}
		c.change(func(st *runtimeapi.ContainerStatus) {
			st.State, st.StartedAt = runtimeapi.ContainerState_CONTAINER_RUNNING, k.StartedAt
		})
		d.watchOOM(s, c)
	case k.Phase == keeper.PhaseExited:
		c.ended = make(chan struct{})
		if r.Exit == nil {
			return d.exited(ctx, k)
		}
		if err := d.end(ctx, c, d.Handlers[s.handler], *r.Exit); err != nil {
			return err
		}
		return d.acknowledge(ctx, k.ID)
	case !state.Started:
	default:
		// The start was interrupted, or the keeper has lost the container.
		h := d.Handlers[s.handler]
		e := store.Exit{Code: codeUnknown, FinishedAt: time.Now().UnixNano(), Reason: reasonUnknown, Message: "the start of the container was interrupted"}
		if err := d.end(ctx, c, h, e); err != nil {
			return err
		}
		if k.ID != "" {
			return d.Keeper.Acknowledge(ctx, k.ID)
		}
	}
	return nil
}

// recoverAfterBoot makes a container of an earlier boot, which has ended.
func (d *Driver) recoverAfterBoot(ctx context.Context, c *podContainer, s *podSandbox, r *store.Record) error {
	if r.Exit == nil {
		r.Exit = &store.Exit{Code: codeUnknown, FinishedAt: time.Now().UnixNano(), Reason: reasonUnknown}
		if err := d.Store.Finish(ctx, c.id, *r.Exit); err != nil {
			return err
		}
	}
	c.status = &runtimeapi.ContainerStatus{
		Id: c.id, Metadata: r.Container.GetMetadata(), CreatedAt: r.CreatedAt.UnixNano(), StartedAt: r.Exit.StartedAt,
		Image: r.Container.GetImage(), ImageRef: r.Image, Labels: r.Container.GetLabels(), Annotations: r.Container.GetAnnotations(),
		StopSignal: r.Container.GetStopSignal(),
	}
	c.finish(*r.Exit)
	d.containers[c.id] = c
	return errors.Join(d.reserve(c.name, c.id), d.Store.RemoveSnapshot(ctx, c.id))
}

// sweepVolumes removes the volumes of containers that are gone.
func (d *Driver) sweepVolumes() error {
	all, err := os.ReadDir(d.VolumeDir)
	if err != nil {
		return err
	}
	for _, e := range all {
		if d.containers[e.Name()] == nil {
			if err := os.RemoveAll(filepath.Join(d.VolumeDir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// discardKept kills and deletes a container, and makes the keeper forget it.
func (d *Driver) discardKept(ctx context.Context, h Handler, id string) error {
	if err := deleteContainer(ctx, h, id); err != nil {
		return err
	}
	for {
		err := d.Keeper.Acknowledge(ctx, id)
		if errors.Is(err, keeper.ErrNotFound) {
			return nil
		}
		if !errors.Is(err, keeper.ErrInvalid) { // it has not seen the end of the container
			return err
		}
		if !wait.Pause(ctx, 20*time.Millisecond) {
			return cancelled(ctx)
		}
	}
}

// recorded returns the recorded end of a container.
func recorded(r *store.Record) *store.Exit {
	if r.Exit != nil {
		return r.Exit
	}
	return &store.Exit{Code: codeUnknown, Reason: reasonUnknown}
}

// sweep removes what belongs to no record: snapshots of interrupted calls, containers of the
// keeper, and commands.
func (d *Driver) sweep(ctx context.Context, kept map[string]keeper.Container) error {
	for id := range kept {
		if d.containers[id] != nil || d.firsts[id] != nil || d.sandboxes[id] != nil {
			continue
		}
		if err := d.discardKept(ctx, d.Handlers[""], id); err != nil {
			return err
		}
	}
	keys, err := d.Store.Snapshots(ctx)
	if err != nil {
		return err
	}
	for _, key := range keys {
		if d.ownsSnapshot(key) {
			continue
		}
		id, _, _ := strings.Cut(key, "-")
		if d.containers[id] == nil {
			if err := d.unmount(id); err != nil {
				return err // what is mounted must not be removed with the directory
			}
			if err := removeState(d.containerDir(id)); err != nil {
				return err
			}
		}
		if err := d.Store.RemoveSnapshot(ctx, key); err != nil {
			return err
		}
	}
	if err := d.sweepVolumes(); err != nil {
		return err
	}
	return oci.Sweep(d.execDir(), func(int, string) bool { return false })
}
