package shutdown

import (
	"cmp"
	"math"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"
)

// systemCritical is the priority of the class system-cluster-critical, from
// which on shutdownGracePeriodCriticalPods counts.
const systemCritical = 2_000_000_000

// Period is how long the pods from a priority on, up to that of the next
// period, may take to end.
type Period struct {
	Priority int32
	Time     time.Duration // whole seconds, not negative
}

// Group is the pods of one period.
type Group struct {
	Period
	Pods []*v1.Pod
}

// Periods is the configuration's, the lowest priority first; none means that
// nothing is stopped before the machine goes down.
func Periods(kc *kubelet.KubeletConfiguration) []Period {
	if !gate(kc.FeatureGates, "GracefulNodeShutdown") {
		return nil
	}
	if len(kc.ShutdownGracePeriodByPodPriority) == 0 || !gate(kc.FeatureGates, "GracefulNodeShutdownBasedOnPodPriority") {
		return twoPeriods(kc.ShutdownGracePeriod.Duration, kc.ShutdownGracePeriodCriticalPods.Duration)
	}
	periods := make([]Period, 0, len(kc.ShutdownGracePeriodByPodPriority))
	for _, p := range kc.ShutdownGracePeriodByPodPriority {
		periods = append(periods, Period{p.Priority, seconds(p.ShutdownGracePeriodSeconds)})
	}
	slices.SortStableFunc(periods, func(a, b Period) int { return cmp.Compare(a.Priority, b.Priority) })
	return periods
}

// gate is one of the feature gates that are on by default, and beta.
func gate(gates map[string]bool, name string) bool {
	if on, set := gates[name]; set {
		return on
	}
	on, set := gates["AllBeta"]
	return on || !set
}

// twoPeriods gives critical pods their part of the whole time, and the others
// the rest, each in whole seconds.
func twoPeriods(total, critical time.Duration) []Period {
	if total == 0 || critical > total || critical < 0 {
		return nil
	}
	return []Period{
		{0, (total - critical).Truncate(time.Second)},
		{systemCritical, critical.Truncate(time.Second)},
	}
}

// seconds is n seconds, and not less than none nor more than a Duration holds.
func seconds(n int64) time.Duration {
	return time.Duration(min(max(n, 0), math.MaxInt64/int64(time.Second))) * time.Second
}

// Total is how long all periods take together.
func Total(periods []Period) time.Duration {
	var sum time.Duration
	for _, p := range periods {
		sum += min(p.Time, math.MaxInt64-sum)
	}
	return sum
}

// Plan puts each pod into the group of its priority: the highest period that
// does not begin above it, or else the lowest. There is a group for each
// period, also an empty one; without periods there is none.
func Plan(periods []Period, pods []*v1.Pod) []Group {
	if len(periods) == 0 {
		return nil
	}
	groups := make([]Group, len(periods))
	for i, p := range periods {
		groups[i].Period = p
	}
	for _, p := range pods {
		i := indexOf(periods, p)
		groups[i].Pods = append(groups[i].Pods, p)
	}
	return groups
}

// indexOf is the pod's period. Of several of one priority the first counts
// for that priority, and the last for those above it.
func indexOf(periods []Period, p *v1.Pod) int {
	var priority int32
	if p.Spec.Priority != nil {
		priority = *p.Spec.Priority
	}
	i, exact := slices.BinarySearchFunc(periods, priority, func(period Period, want int32) int {
		return cmp.Compare(period.Priority, want)
	})
	if !exact {
		i--
	}
	return max(i, 0)
}

// Grace is how long a pod's containers get of the time that its group has:
// their own grace period if that is no longer, and never less than a second
// (calculateEffectiveGracePeriod in pkg/kubelet/pod_workers.go).
func Grace(p *v1.Pod, left time.Duration) time.Duration {
	if own := p.Spec.TerminationGracePeriodSeconds; own != nil {
		left = min(left, seconds(*own))
	}
	return max(left, time.Second)
}
