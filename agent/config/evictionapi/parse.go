package evictionapi

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	kubelet "github.com/tinylet/tinylet/agent/config/kubeletconfig"
	"github.com/tinylet/tinylet/agent/pod"
)

// Parse parses the thresholds of kc by the rules of ParseThresholdConfig in
// pkg/kubelet/eviction/helpers.go. It returns them in the order of signals, hard
// before soft. A threshold of 0% or 100% is off. If the pods' memory is limited to node
// allocatable ("pods" in enforceNodeAllocatable), the hard threshold of memory.available
// also applies to allocatableMemory.available, in addition to a threshold that is set for
// that signal. The error joins all errors.
func Parse(kc *kubelet.KubeletConfiguration) ([]Threshold, error) {
	p := parser{}
	hard := p.values("evictionHard", kc.EvictionHard, parseThreshold)
	soft := p.values("evictionSoft", kc.EvictionSoft, parseThreshold)
	graces := p.graces("evictionSoftGracePeriod", kc.EvictionSoftGracePeriod)
	reclaims := p.values("evictionMinimumReclaim", kc.EvictionMinimumReclaim, parseMinReclaim)
	enforcePods := slices.Contains(kc.EnforceNodeAllocatable, "pods")
	var out []Threshold
	for s := MemoryAvailable; s < NumSignals; s++ {
		if s == AllocatableMemoryAvailable && enforcePods && hard[MemoryAvailable] != (Value{}) {
			out = append(out, Threshold{Signal: s, Value: hard[MemoryAvailable], MinReclaim: reclaims[MemoryAvailable]})
		}
		if hard[s] != (Value{}) {
			out = append(out, Threshold{Signal: s, Value: hard[s], MinReclaim: reclaims[s]})
		}
		if soft[s] == (Value{}) {
			continue
		}
		if graces[s] == nil {
			p.fail("evictionSoft[%s]: no evictionSoftGracePeriod is set", s)
			continue
		}
		out = append(out, Threshold{Signal: s, Value: soft[s], Grace: *graces[s], MinReclaim: reclaims[s]})
	}
	if err := errors.Join(p.errs...); err != nil {
		return nil, err
	}
	return out, nil
}

type parser struct{ errs []error }

func (p *parser) fail(format string, args ...any) {
	p.errs = append(p.errs, fmt.Errorf(format, args...))
}

// each calls do with the entries of a map, ordered by the names of signals.
func (p *parser) each(field string, texts map[string]string, do func(Signal, string) error) {
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		s, ok := SignalOf(name)
		if !ok {
			p.fail("%s: unknown eviction signal %q", field, name)
			continue
		}
		if err := do(s, texts[name]); err != nil {
			p.fail("%s[%s] %q: %w", field, name, texts[name], err)
		}
	}
}

func (p *parser) values(field string, texts map[string]string, read func(string) (Value, error)) (out [NumSignals]Value) {
	p.each(field, texts, func(s Signal, text string) (err error) {
		out[s], err = read(text)
		return err
	})
	return out
}

func (p *parser) graces(field string, texts map[string]string) (out [NumSignals]*time.Duration) {
	p.each(field, texts, func(s Signal, text string) error {
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			out[s] = new(time.Duration) // do not report it as missing as well
			return errors.New("not a duration such as 1m30s")
		}
		out[s] = &d
		return nil
	})
	return out
}

// parseThreshold parses a value above zero. It returns the zero Value for 0% and 100%.
func parseThreshold(text string) (Value, error) {
	if percent, ok := strings.CutSuffix(text, "%"); ok {
		share, err := parseShare(percent)
		if err != nil || share == 0 || share == 1 {
			return Value{}, err
		}
		return Value{Share: share}, nil
	}
	v, err := parseAmount(text)
	if err == nil && v.Amount == 0 {
		return Value{}, errors.New("not above 0; 0% turns a threshold off")
	}
	return v, err
}

// parseMinReclaim parses a percentage above zero, or an amount that may be zero.
func parseMinReclaim(text string) (Value, error) {
	percent, ok := strings.CutSuffix(text, "%")
	if !ok {
		return parseAmount(text)
	}
	share, err := parseShare(percent)
	if err == nil && share == 0 {
		return Value{}, errors.New("not a percentage above 0")
	}
	return Value{Share: share}, err
}

// parseShare parses a percentage, without its sign, to a share from 0 to 1. Unlike
// upstream it rejects NaN and a second percent sign.
func parseShare(percent string) (float32, error) {
	p, err := strconv.ParseFloat(percent, 32)
	if err != nil || !(p >= 0 && p <= 100) {
		return 0, errors.New("not a percentage from 0 to 100")
	}
	return float32(p) / 100, nil
}

func parseAmount(text string) (Value, error) {
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return Value{}, err
	}
	if q.Sign() < 0 {
		return Value{}, errors.New("negative")
	}
	return Value{Amount: pod.Value(q), Text: q.String()}, nil
}
