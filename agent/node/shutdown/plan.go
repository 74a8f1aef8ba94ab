package shutdown

import (
	"cmp"
	"math"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	kubelet "github.com/tinylet/tinylet/agent/config/kubeletconfig"
)

// systemCritical is the priority of the class system-cluster-critical.
// shutdownGracePeriodCriticalPods is for pods of this priority or a higher one.
const systemCritical = 2_000_000_000

// Period is the time that pods may take to end if their priority is at least Priority
// and below that of the next period.
type Period struct {
	Priority int32
	Time     time.Duration // whole seconds, not negative
}

// Periods returns the periods of the configuration, the lowest priority first. It
// returns none if no pod is terminated before the machine goes down.
func Periods(kc *kubelet.KubeletConfiguration) []Period {
	if !featureEnabled(kc.FeatureGates, "GracefulNodeShutdown") {
		return nil
	}
	if len(kc.ShutdownGracePeriodByPodPriority) == 0 || !featureEnabled(kc.FeatureGates, "GracefulNodeShutdownBasedOnPodPriority") {
		return twoPeriods(kc.ShutdownGracePeriod.Duration, kc.ShutdownGracePeriodCriticalPods.Duration)
	}
	periods := make([]Period, 0, len(kc.ShutdownGracePeriodByPodPriority))
	for _, p := range kc.ShutdownGracePeriodByPodPriority {
		periods = append(periods, Period{p.Priority, seconds(p.ShutdownGracePeriodSeconds)})
	}
	slices.SortStableFunc(periods, func(a, b Period) int { return cmp.Compare(a.Priority, b.Priority) })
	return periods
}

// featureEnabled reports whether a feature gate that is beta and on by default is on.
func featureEnabled(gates map[string]bool, name string) bool {
	if on, set := gates[name]; set {
		return on
	}
	on, set := gates["AllBeta"]
	return on || !set
}

// twoPeriods gives critical pods their part of the total time and the others the
// rest, each in whole seconds.
func twoPeriods(total, critical time.Duration) []Period {
	if total == 0 || critical > total || critical < 0 {
		return nil
	}
	return []Period{
		{0, (total - critical).Truncate(time.Second)},
		{systemCritical, critical.Truncate(time.Second)},
	}
}

// seconds converts n seconds, limited to 0 and to the longest Duration.
func seconds(n int64) time.Duration {
	return time.Duration(min(max(n, 0), math.MaxInt64/int64(time.Second))) * time.Second
}

// Total returns how long all periods take together.
func Total(periods []Period) time.Duration {
	var sum time.Duration
	for _, p := range periods {
		sum += min(p.Time, math.MaxInt64-sum)
	}
	return sum
}

// indexOf returns the index of the pod's period: the highest one that does not begin
// above the pod's priority, or else the lowest. Of several periods with the same
// priority, the first is for that priority, and the last for the priorities above.
func indexOf(periods []Period, p *v1.Pod) int {
	i, exact := slices.BinarySearchFunc(periods, ptr.Deref(p.Spec.Priority, 0), func(period Period, want int32) int {
		return cmp.Compare(period.Priority, want)
	})
	if !exact {
		i--
	}
	return max(i, 0)
}

// Grace returns the grace period of a pod when its group has the time left: the
// pod's own grace period, but at most left and at least one second
// (calculateEffectiveGracePeriod in pkg/kubelet/pod_workers.go).
func Grace(p *v1.Pod, left time.Duration) time.Duration {
	if own := p.Spec.TerminationGracePeriodSeconds; own != nil {
		left = min(left, seconds(*own))
	}
	return max(left, time.Second)
}
