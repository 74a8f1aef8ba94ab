package pleg

import (
	"context"
	"hash/maphash"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/wait"
)

// relistLoop relists on request and by a timer, and makes the heartbeats. It makes all
// calls of the PLEG except the subscription to events.
func (p *PLEG) relistLoop(ctx context.Context) {
	var last relistResult
	relist, heartbeat := time.NewTimer(0), time.NewTimer(wait.Around(heartbeatPeriod, 10))
	defer relist.Stop()
	defer heartbeat.Stop()
	retry := retryFirst
	due := time.Now()    // when the relist timer fires
	var again time.Time  // when to list again; zero is never
	var listed time.Time // start of the last list, zero if it failed
	var good time.Time   // start of the last list that succeeded
	for {
		asked := false
		select {
		case <-ctx.Done():
			return
		case <-heartbeat.C:
			heartbeat.Reset(p.heartbeat(ctx))
			continue
		case <-p.relistSoon:
			again = time.Now().Add(repeatDelay)
			if again.Before(due) {
				due = again
				relist.Reset(repeatDelay)
			}
			continue
		case <-p.relistNow:
			asked = true
		case <-relist.C:
			// The stream may have become proven since the timer was set.
			if wait := p.period() - time.Since(listed); wait > unprovenPeriod*2 && !listed.Before(again) {
				due = time.Now().Add(wait)
				relist.Reset(wait)
				continue
			}
		}
		begun := time.Now()
		now, err := p.list(ctx)
		if ctx.Err() != nil {
			return
		}
		p.relistDurations.Observe(time.Since(begun), err)
		if !good.IsZero() {
			p.relistIntervals.Observe(begun.Sub(good), nil)
		}
		p.recordResult(err)
		next := p.period()
		if err != nil {
			next, retry, listed = wait.Around(retry, 10), nextBackoff(retry), time.Time{}
		} else {
			retry, listed, good = retryFirst, begun, begun
			p.publish(last, now)
			last = now
		}
		if begun.Before(again) {
			next = min(next, max(time.Until(again), 0))
		}
		due = time.Now().Add(next)
		relist.Reset(next)
		if asked && !wait.Pause(ctx, relistGap) {
			return
		}
	}
}

// period returns the time to the next relist. A stream that has delivered nothing may
// miss the next events. With containerd 1.7, which has one queue for all subscribers, a
// subscriber that has disconnected still takes one event.
func (p *PLEG) period() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch p.streamState {
	case streamProven:
		return wait.Around(relistPeriod, 10)
	case streamUnproven:
		return wait.Around(unprovenPeriod, 10)
	case streamClosed:
	}
	return pollPeriod
}

// heartbeat calls Status unless the runtime responded recently, and requests a relist if
// the call fails. It returns the time to the next heartbeat.
func (p *PLEG) heartbeat(ctx context.Context) time.Duration {
	p.mu.Lock()
	quiet := time.Since(p.lastSeen)
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
	p.recordResult(err)
	if err != nil {
		wait.Notify(p.relistNow) // retried until the runtime responds
		return wait.Around(retryMax, 10)
	}
	return wait.Around(heartbeatPeriod, 10)
}

// relistResult is the result of one relist.
type relistResult struct {
	fingerprints map[types.UID]uint64 // changes whenever an object of the pod does
	pods         []Pod
	owners       map[string]types.UID
}

// list lists all pods of the runtime with two calls.
func (p *PLEG) list(ctx context.Context) (relistResult, error) {
	v := relistResult{fingerprints: make(map[types.UID]uint64), owners: make(map[string]types.UID), pods: []Pod{}}
	ctx, cancel := context.WithTimeout(ctx, listLimit)
	defer cancel()
	sandboxes, err := p.cfg.Runtime.ListPodSandbox(ctx, nil)
	if err != nil {
		return v, err
	}
	containers, err := p.cfg.Runtime.ListContainers(ctx, nil)
	if err != nil {
		return v, err
	}
	for _, s := range sandboxes {
		v.add(s.GetLabels(), nil, s.GetId(), int32(s.GetState()), s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY)
	}
	for _, c := range containers {
		v.add(c.GetLabels(), c.GetAnnotations(), c.GetId(), int32(c.GetState()), c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING)
	}
	return v, nil
}

// seed is the same for all fingerprints of the process, so that they can be compared.
var seed = maphash.MakeSeed()

// add adds one sandbox or container. A fingerprint is a sum of hashes, so it does not
// depend on the order of the list.
func (v *relistResult) add(labels, annotations map[string]string, id string, state int32, running bool) {
	who, ok := container.IdentityOf(labels)
	if !ok {
		return // it belongs to no pod
	}
	v.owners[id] = who.UID
	if _, known := v.fingerprints[who.UID]; !known {
		v.pods = append(v.pods, Pod{Ref: who, GracePeriod: -1})
	}
	v.fingerprints[who.UID] += maphash.String(seed, id+strconv.Itoa(int(state)))
	p := &v.pods[slices.IndexFunc(v.pods, func(p Pod) bool { return p.Ref.UID == who.UID })]
	p.GracePeriod = max(p.GracePeriod, container.GracePeriodOf(annotations))
	p.Running = p.Running || running
}

// publish queues the snapshot and the pods that changed between two relists. It queues a
// change even if an event has reported it already, because the consumer may have observed
// the pod before the runtime's status showed what the event reported.
func (p *PLEG) publish(last, now relistResult) {
	p.mu.Lock()
	for uid, mark := range now.fingerprints {
		if old, ok := last.fingerprints[uid]; !ok || old != mark {
			p.changed(uid)
		}
	}
	for uid := range last.fingerprints {
		if _, ok := now.fingerprints[uid]; !ok {
			p.changed(uid)
		}
	}
	p.owners = now.owners
	p.snapshot = now.pods
	p.mu.Unlock()
	wait.Notify(p.wake)
}
