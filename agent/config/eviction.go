package config

import (
	"log/slog"
	"slices"

	"github.com/tinylet/tinylet/agent/config/evictionapi"
	kubelet "github.com/tinylet/tinylet/agent/config/kubeletconfig"
)

// Thresholds returns the eviction thresholds of the configuration. The error joins
// all errors in them.
func Thresholds(kc *kubelet.KubeletConfiguration) ([]evictionapi.Threshold, error) {
	return evictionapi.Parse(evictionapi.Config{
		Hard: kc.EvictionHard, Soft: kc.EvictionSoft, SoftGrace: kc.EvictionSoftGracePeriod,
		MinReclaim: kc.EvictionMinimumReclaim, EnforcePods: slices.Contains(kc.EnforceNodeAllocatable, "pods"),
	})
}

func (c *checker) eviction(kc *kubelet.KubeletConfiguration) {
	c.durationAtLeast("evictionPressureTransitionPeriod", kc.EvictionPressureTransitionPeriod.Duration, 0)
	if _, err := Thresholds(kc); err != nil {
		c.errs = append(c.errs, err)
	}
}

// memoryWarnings returns warnings about memory.available thresholds that are unsuitable
// for this machine, or have no effect. They are not errors, because several nodes may
// share a file.
func memoryWarnings(kc *kubelet.KubeletConfiguration, memory int64) []Warning {
	thresholds, err := Thresholds(kc)
	if err != nil || memory <= 0 {
		return nil // Validate reports the error
	}
	var out []Warning
	var hard int64
	for _, t := range thresholds {
		if t.Signal != evictionapi.MemoryAvailable {
			continue
		}
		least, field := t.Value.ForCapacity(memory), "evictionHard[memory.available]"
		if t.Grace > 0 {
			field = "evictionSoft[memory.available]"
		} else {
			hard = max(hard, least)
		}
		switch {
		case least >= memory:
			out = append(out, Warning{"eviction threshold is not below machine memory", []slog.Attr{
				slog.String("field", field), slog.Int64("threshold", least), slog.Int64("memory", memory),
				slog.String("effect", "all evictable pods will be evicted"), slog.String("remedy", "set the amount that must stay free"),
			}})
		case t.Grace > 0 && least <= hard:
			out = append(out, Warning{"soft eviction threshold has no effect", []slog.Attr{
				slog.String("field", field), slog.Int64("threshold", least), slog.Int64("hard", hard), slog.String("remedy", "set it above the hard threshold"),
			}})
		}
	}
	return out
}
