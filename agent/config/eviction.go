package config

import (
	"log/slog"
	"slices"

	"github.com/tinylet/tinylet/agent/config/evictionapi"
	kubelet "github.com/tinylet/tinylet/agent/config/kubeletconfig"
)

func (c *checker) eviction(kc *kubelet.KubeletConfiguration) {
	c.durationAtLeast("evictionPressureTransitionPeriod", kc.EvictionPressureTransitionPeriod.Duration, 0)
	if _, err := evictionapi.Parse(kc); err != nil {
		c.errs = append(c.errs, err)
	}
}

// memoryWarnings returns warnings about memory.available thresholds that are unsuitable
// for this machine, or have no effect. They are not errors, because several nodes may
// share a file.
func memoryWarnings(kc *kubelet.KubeletConfiguration, memory int64) []Warning {
	if memory <= 0 {
		return nil
	}
	var out []Warning
	var hard int64
	for _, from := range []struct {
		field  string
		config kubelet.KubeletConfiguration
	}{
		{"evictionHard[memory.available]", kubelet.KubeletConfiguration{EvictionHard: kc.EvictionHard}},
		{"evictionSoft[memory.available]", kubelet.KubeletConfiguration{EvictionSoft: kc.EvictionSoft, EvictionSoftGracePeriod: kc.EvictionSoftGracePeriod}},
	} {
		thresholds, err := evictionapi.Parse(&from.config)
		if err != nil {
			return nil // Validate reports the error
		}
		at := slices.IndexFunc(thresholds, func(t evictionapi.Threshold) bool { return t.Signal == evictionapi.MemoryAvailable })
		if at < 0 {
			continue
		}
		t := thresholds[at]
		least := t.Value.ForCapacity(memory)
		if t.Hard() {
			hard = max(hard, least)
		}
		switch {
		case least >= memory:
			out = append(out, Warning{"eviction threshold is not below machine memory", []slog.Attr{
				slog.String("field", from.field), slog.Int64("threshold", least), slog.Int64("memory", memory),
				slog.String("effect", "all evictable pods will be evicted"), slog.String("remedy", "set the amount that must stay free"),
			}})
		case !t.Hard() && least <= hard:
			out = append(out, Warning{"soft eviction threshold has no effect", []slog.Attr{
				slog.String("field", from.field), slog.Int64("threshold", least), slog.Int64("hard", hard), slog.String("remedy", "set it above the hard threshold"),
			}})
		}
	}
	return out
}
