package bench

import (
	"slices"
	"time"
)

// figure names one measured value.
type figure string

// measurements maps what was measured of one agent to the value. A value that was
// not measured is missing.
type measurements map[figure]float64

// What is measured. Memory and traffic are in MB of 10^6 bytes or kB of 10^3,
// CPU in ms for each second, times in seconds.
const (
	binarySize figure = "binary size"

	idleRSS        figure = "agent RSS, no pods"
	idleAnon       figure = "agent anonymous memory, no pods"
	idleContainerd figure = "containerd anonymous memory, no pods"
	idleAvailable  figure = "available, no pods"
	podsRSS        figure = "agent RSS, ten pods"
	podsAnon       figure = "agent anonymous memory, ten pods"
	podsContainerd figure = "containerd anonymous memory, ten pods"
	podsAvailable  figure = "available, ten pods"
	podMemory      figure = "node memory of a pod"

	wireIn    figure = "received, no pods"
	wireOut   figure = "sent, no pods"
	wireBoth  figure = "both ways, no pods"
	idleFlash figure = "written, no pods"
	podsFlash figure = "written, ten pods"

	oneStart   figure = "one pod starts"
	oneDelete  figure = "one pod goes"
	tenStart   figure = "ten pods start, median"
	lastStart  figure = "ten pods start, last"
	tenDelete  figure = "ten pods go, median"
	lastDelete figure = "ten pods go, last"
)

// idleCPU and podsCPU name the CPU of a part of the node.
func idleCPU(of string) figure { return figure("CPU, no pods: " + of) }
func podsCPU(of string) figure { return figure("CPU, ten pods: " + of) }

// partNames are parts as the table has them, and sums of them.
var partNames = [parts]string{
	partAgent: "agent", partContainerd: "containerd", partShims: "shims", partPods: "pods",
	partKernel: "kernel threads", partOther: "other processes",
}

const (
	// runtimeParts is what agent and runtime take together.
	runtimeParts = "agent, containerd and shims"
	wholeNode    = "whole node"
)

const (
	mega = 1e6
	kilo = 1e3
)

// addWindow adds the CPU of a window and returns it for more.
func (f measurements) addWindow(w window, name func(string) figure) {
	for p, of := range partNames {
		f[name(of)] = w.perSecond(w.cpu[p])
	}
	f[name(runtimeParts)] = w.perSecond(w.cpu[partAgent] + w.cpu[partContainerd] + w.cpu[partShims])
	f[name(wholeNode)] = w.perSecond(w.busy)
}

// memoryOf is the median of samples of what a part of the node has in RAM.
func memoryOf(samples []*sample, agent string, of part) (rss, anon float64) {
	var all, anonymous []float64
	for _, s := range samples {
		r, a := s.memory(agent, of)
		all, anonymous = append(all, float64(r)), append(anonymous, float64(a))
	}
	return median(all) / mega, median(anonymous) / mega
}

func availableOf(samples []*sample) float64 {
	var all []float64
	for _, s := range samples {
		all = append(all, float64(s.available))
	}
	return median(all) / mega
}

// addIdle adds what a node without pods costs. samples are of one window, in
// order. Only a window as long as the pause between two reports of the node's
// status measures the network traffic: a shorter one has one of them or none.
func (f measurements) addIdle(samples []*sample, agent string, wire bool) error {
	w, err := samples[len(samples)-1].since(samples[0], agent)
	if err != nil {
		return err
	}
	f.addWindow(w, idleCPU)
	f[idleRSS], f[idleAnon] = memoryOf(samples, agent, partAgent)
	_, f[idleContainerd] = memoryOf(samples, agent, partContainerd)
	f[idleAvailable] = availableOf(samples)
	f[idleFlash] = w.perHour(w.written) / kilo
	if wire {
		f[wireIn], f[wireOut] = w.perHour(w.received)/mega, w.perHour(w.sent)/mega
		f[wireBoth] = f[wireIn] + f[wireOut]
	}
	return nil
}

// addPods adds what a node costs whose pods do nothing. It comes after addIdle.
func (f measurements) addPods(samples []*sample, agent string, pods int) error {
	w, err := samples[len(samples)-1].since(samples[0], agent)
	if err != nil {
		return err
	}
	f.addWindow(w, podsCPU)
	f[podsRSS], f[podsAnon] = memoryOf(samples, agent, partAgent)
	_, f[podsContainerd] = memoryOf(samples, agent, partContainerd)
	f[podsAvailable] = availableOf(samples)
	f[podMemory] = (f[idleAvailable] - f[podsAvailable]) / float64(pods)
	f[podsFlash] = w.perHour(w.written) / kilo
	return nil
}

// addOne adds the times of pods that came and went one after the other.
func (f measurements) addOne(starts, deletes []time.Duration) {
	f[oneStart] = median(starts).Seconds()
	f[oneDelete] = median(deletes).Seconds()
}

// addTen adds the times of ten pods that came and went at once.
func (f measurements) addTen(starts, deletes []time.Duration) {
	f[tenStart], f[lastStart] = median(starts).Seconds(), slices.Max(starts).Seconds()
	f[tenDelete], f[lastDelete] = median(deletes).Seconds(), slices.Max(deletes).Seconds()
}
