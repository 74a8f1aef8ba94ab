package pleg

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod"
)

// check relists when asked to and by the clock, and keeps the heartbeat. All
// calls of the PLEG that may hang are made here.
func (p *PLEG) check(ctx context.Context) {
	relist, heartbeat := time.NewTimer(0), time.NewTimer(jitter(heartbeatPeriod))
	defer relist.Stop()
	defer heartbeat.Stop()
	retry := retryFirst
	due := time.Now()   // when the relist timer fires
	var again time.Time // list once more then; zero is never
	for {
		asked := false
		select {
		case <-ctx.Done():
			return
		case <-heartbeat.C:
			heartbeat.Reset(p.beat(ctx))
			continue
		case <-p.relistSoon:
			again = time.Now().Add(settleGap)
			if again.Before(due) {
				due = again
				relist.Reset(settleGap)
			}
			continue
		case <-p.relistNow:
			asked = true
		case <-relist.C:
		}
		begun := time.Now()
		now, err := p.list(ctx)
		if ctx.Err() != nil {
			return
		}
		p.note(err)
		next := p.period()
		if err != nil {
			next, retry = jitter(retry), longer(retry)
		} else {
			retry = retryFirst
			p.publish(now)
		}
		if begun.Before(again) {
			next = min(next, max(time.Until(again), 0))
		}
		due = time.Now().Add(next)
		relist.Reset(next)
		if err == nil && asked && !pause(ctx, relistGap) {
			return
		}
	}
}

// period is the time to the next relist. A stream that has delivered nothing
// may never do so: where a subscriber that is gone still has a claim on the
// next events (containerd 1.7 has one queue for all), they are lost.
func (p *PLEG) period() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch p.trust {
	case proven:
		return jitter(relistPeriod)
	case unproven:
		return jitter(unprovenPeriod)
	case closed:
	}
	return pollPeriod
}

// beat asks the runtime how it is unless it was heard of lately, and answers
// when to beat again.
func (p *PLEG) beat(ctx context.Context) time.Duration {
	p.mu.Lock()
	quiet := time.Since(p.heard)
	p.mu.Unlock()
	if due := heartbeatPeriod - quiet; due > heartbeatPeriod/10 {
		return due
	}
	limited, cancel := context.WithTimeout(ctx, heartbeatLimit)
	defer cancel()
	_, err := p.cfg.Runtime.Status(limited)
	if ctx.Err() != nil {
		return heartbeatPeriod
	}
	p.note(err)
	if err != nil {
		fill(p.relistNow) // and again until it answers
		return jitter(retryMax)
	}
	return jitter(heartbeatPeriod)
}

// object is a sandbox or a container as the consumer was last told of it.
type object struct {
	pod   types.UID
	state state
}

// state is how far an object is in its life. A ready sandbox runs.
type state uint8

const (
	unknown state = iota
	created
	running
	stopped
)

func stateOfContainer(s runtimeapi.ContainerState) state {
	switch s {
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		return created
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		return running
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		return stopped
	case runtimeapi.ContainerState_CONTAINER_UNKNOWN:
	}
	return unknown
}

func stateOfSandbox(s runtimeapi.PodSandboxState) state {
	if s == runtimeapi.PodSandboxState_SANDBOX_READY {
		return running
	}
	return stopped
}

// view is what one relist saw.
type view struct {
	objects map[string]object // by ID
	pods    []Pod
}

// list asks the runtime for all pods with two calls.
func (p *PLEG) list(ctx context.Context) (view, error) {
	v := view{objects: make(map[string]object), pods: []Pod{}}
	ctx, cancel := context.WithTimeout(ctx, listLimit)
	defer cancel()
	sandboxes, err := p.cfg.Runtime.ListPodSandbox(ctx, nil)
	if err != nil {
		return v, fmt.Errorf("list sandboxes: %w", err)
	}
	containers, err := p.cfg.Runtime.ListContainers(ctx, nil)
	if err != nil {
		return v, fmt.Errorf("list containers: %w", err)
	}
	for _, s := range sandboxes {
		v.add(s.GetLabels(), nil, s.GetId(), stateOfSandbox(s.GetState()))
	}
	for _, c := range containers {
		v.add(c.GetLabels(), c.GetAnnotations(), c.GetId(), stateOfContainer(c.GetState()))
	}
	return v, nil
}

// add counts one object in.
func (v *view) add(labels, annotations map[string]string, id string, s state) {
	who, ok := container.IdentityOf(labels)
	if !ok {
		return // not a pod's
	}
	v.objects[id] = object{pod: who.UID, state: s}
	i := slices.IndexFunc(v.pods, func(p Pod) bool { return p.Ref.UID == who.UID })
	if i < 0 {
		i = len(v.pods)
		v.pods = append(v.pods, Pod{Ref: pod.Ref{UID: who.UID, Namespace: who.Namespace, Name: who.Name}, Grace: -1})
	}
	p := &v.pods[i]
	p.Grace = max(p.Grace, container.GraceOf(annotations))
	p.Running = p.Running || s == running
}

// publish queues the pods that are not as was told last, by an event or by
// the relist before, and the snapshot.
func (p *PLEG) publish(now view) {
	p.mu.Lock()
	for id, o := range now.objects {
		if p.told[id] != o {
			p.changed(o.pod)
		}
	}
	for id, o := range p.told {
		if _, there := now.objects[id]; !there {
			p.changed(o.pod)
		}
	}
	p.told = now.objects
	p.fresh = now.pods
	p.mu.Unlock()
	fill(p.news)
}
