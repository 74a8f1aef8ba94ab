package oom

import (
	"errors"
	"io/fs"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/cgroups"
)

// check compares all counters with those of the previous check, and reports new kills.
// The caller must hold the lock.
func (w *Watcher) check() {
	node, ok := w.cfg.Node()
	if !ok {
		return
	}
	if !w.hasBaseline {
		w.initBaseline(node)
		return
	}
	kernel, known := w.kernelKills() // read before the pods' counters, which it includes
	top, _ := w.read(kubepods(node)) // a missing cgroup counts nothing
	switch {
	case top.kills < w.podsCounts.kills || top.oom < w.podsCounts.oom: // created again
		again, _ := w.kernelKills() // a baseline must not be too low
		w.podsLimitHits, w.outsideKills = 0, less(again, top.kills)
	case top.kills == w.podsCounts.kills && top.oom == w.podsCounts.oom:
		if known {
			w.checkSystem(node, less(kernel, top.kills), nil)
		}
		return
	}
	now := time.Now()
	if limits := w.ownLimits(node); limits > w.podsLimitHits {
		w.podsLimitHits, w.podsLimitHitAt = limits, now
	}
	victims := w.checkPods(node, now)
	w.podsCounts = top
	if len(victims) > 0 {
		w.systemOOM(victims)
	}
	if known {
		w.checkSystem(node, less(kernel, top.kills), victims)
	}
}

// ownLimits returns how often the limit of the pods' parent cgroup itself was hit.
func (w *Watcher) ownLimits(node *criconfig.Node) uint64 {
	n, _ := w.cfg.Tree.LocalOOM(kubepods(node)) // a missing cgroup counts nothing
	return n
}

// checkPods reports the kills in pods. It returns the victims of a system OOM.
func (w *Watcher) checkPods(node *criconfig.Node, now time.Time) (victims []string) {
	type found struct {
		pod   pod.Entry
		kills []kill
	}
	var all []found
	for _, p := range w.cfg.Pods() {
		path := criconfig.PodCgroup(p.Pod, node)
		c, err := w.read(path)
		if err != nil || c == (counts{}) && w.pods[p.Pod.UID] == nil {
			continue
		}
		l := w.countersOf(p.Pod.UID)
		if c == l.pod {
			continue
		}
		kills := l.update(reading{at: now, pod: c, containers: w.containers(path, node)})
		if len(kills) > 0 || l.unattributed() > 0 {
			all = append(all, found{p, kills})
		}
	}
	for _, f := range all {
		for _, k := range f.kills {
			if k.cause == ofNode && isRecent(now, w.podsLimitHitAt) {
				k.cause = ofPods
			}
			if k.cause == ofNode && k.repeated {
				continue // the cause was reported before
			}
			name := nameBy(f.pod.Status, k.id)
			if k.cause == ofNode {
				victims = append(victims, victim(f.pod.Pod, name))
			}
			if name == "" {
				l := w.countersOf(f.pod.Pod.UID)
				l.unreported = append(l.unreported, k)
				continue
			}
			w.recordKill(f.pod.Pod, name, k)
		}
		w.cfg.Wake(f.pod.Pod.UID)
	}
	return victims
}

func victim(p *v1.Pod, name string) string {
	if name == "" {
		return "a container of pod " + p.Namespace + "/" + p.Name
	}
	return "container " + name + " of pod " + p.Namespace + "/" + p.Name
}

// initBaseline records the counters from before the agent's start.
func (w *Watcher) initBaseline(node *criconfig.Node) {
	w.hasBaseline = true
	now := time.Now()
	w.podsCounts, _ = w.read(kubepods(node))
	w.podsLimitHits = w.ownLimits(node)
	// Read after the pods' counters: a kill between the two must not be missing here, or
	// the next check would take it for a kill outside of pods.
	kernel, _ := w.kernelKills()
	w.outsideKills = less(kernel, w.podsCounts.kills)
	w.otherLimitHits, _ = w.otherLimits(node) // nil on an error
	for _, class := range []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort} {
		parent := criconfig.QoSCgroup(class, node)
		names, _ := w.cfg.Tree.List(parent) // there may be none yet
		for _, name := range names {
			uid := podOf(name)
			path := parent + "/" + name
			if c, err := w.read(path); uid != "" && err == nil && c != (counts{}) {
				l := w.countersOf(uid)
				l.update(reading{at: now, baseline: true, pod: c, containers: w.containers(path, node)})
				l.markAttributed()
			}
		}
	}
}

// podOf returns the UID in the name of a pod's cgroup, or "".
func podOf(name string) types.UID {
	if uid, ok := strings.CutPrefix(name, "pod"); ok {
		return types.UID(uid)
	}
	if _, uid, ok := strings.Cut(strings.TrimSuffix(name, ".slice"), "-pod"); ok {
		return types.UID(strings.ReplaceAll(uid, "_", "-"))
	}
	return ""
}

// containers returns the nonzero counters of the container cgroups in a pod's cgroup,
// by container ID.
func (w *Watcher) containers(path string, node *criconfig.Node) map[string]counts {
	names, err := w.cfg.Tree.List(path)
	if err != nil {
		return nil
	}
	before, after, _ := strings.Cut(criconfig.ContainerCgroup("", "\x00", node), "\x00")
	before = strings.TrimPrefix(before, "/")
	var out map[string]counts
	for _, name := range names {
		c, err := w.read(path + "/" + name)
		if err != nil || c == (counts{}) {
			continue
		}
		if out == nil {
			out = make(map[string]counts)
		}
		out[strings.TrimSuffix(strings.TrimPrefix(name, before), after)] = c
	}
	return out
}

// read returns a cgroup's counters. Counters that an older kernel lacks are 0.
func (w *Watcher) read(path string) (counts, error) {
	var f cgroups.Stats
	if err := w.files.Read(path, cgroups.PartEvents, &f); err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			w.cfg.Log.Debug("cannot read memory.events", "cgroup", path, "error", err)
		}
		return counts{}, err
	}
	return counts{f.Events.OOM.Value, f.Events.OOMKill.Value, f.Events.OOMGroupKill.Value}, nil
}
