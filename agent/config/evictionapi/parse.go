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
)

// Config is how thresholds are written in a KubeletConfiguration, each by the
// name of a signal.
type Config struct {
	Hard, Soft, SoftGrace, MinReclaim map[string]string
	// EnforcePods says that the pods' memory is limited to what is
	// allocatable ("pods" in enforceNodeAllocatable). The hard threshold of
	// memory then counts for what they have left, too, beside one that is set
	// for that.
	EnforcePods bool
}

// Parse reads thresholds by the rules of ParseThresholdConfig in
// pkg/kubelet/eviction/helpers.go, in the order of signals, hard before soft.
// A threshold of 0% or 100% is off. It tells of everything that is wrong.
func Parse(c Config) ([]Threshold, error) {
	p := parser{}
	hard := p.values("evictionHard", c.Hard, threshold)
	soft := p.values("evictionSoft", c.Soft, threshold)
	graces := p.graces("evictionSoftGracePeriod", c.SoftGrace)
	reclaims := p.values("evictionMinimumReclaim", c.MinReclaim, minReclaim)
	var out []Threshold
	for s := MemoryAvailable; s < Signals; s++ {
		if s == AllocatableMemoryAvailable && c.EnforcePods && hard[MemoryAvailable] != (Value{}) {
			out = append(out, Threshold{Signal: s, Value: hard[MemoryAvailable], MinReclaim: reclaims[MemoryAvailable]})
		}
		if hard[s] != (Value{}) {
			out = append(out, Threshold{Signal: s, Value: hard[s], MinReclaim: reclaims[s]})
		}
		if soft[s] == (Value{}) {
			continue
		}
		if graces[s] == nil {
			p.fail("evictionSoft[%s]: it has no evictionSoftGracePeriod", s)
			continue
		}
		out = append(out, Threshold{Signal: s, Value: soft[s], Grace: *graces[s], MinReclaim: reclaims[s]})
	}
	if err := errors.Join(p.errs...); err != nil {
		return nil, err
	}
	return out, nil
}

// parser collects what is wrong.
type parser struct{ errs []error }

func (p *parser) fail(format string, args ...any) {
	p.errs = append(p.errs, fmt.Errorf(format, args...))
}

// each calls do with the texts of a map, in the order of their names.
func (p *parser) each(field string, texts map[string]string, do func(Signal, string) error) {
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		s, ok := SignalOf(name)
		if !ok {
			p.fail("%s: there is no eviction signal %q", field, name)
			continue
		}
		if err := do(s, texts[name]); err != nil {
			p.fail("%s[%s] %q: %w", field, name, texts[name], err)
		}
	}
}

func (p *parser) values(field string, texts map[string]string, read func(string) (Value, error)) (out [Signals]Value) {
	p.each(field, texts, func(s Signal, text string) (err error) {
		out[s], err = read(text)
		return err
	})
	return out
}

func (p *parser) graces(field string, texts map[string]string) (out [Signals]*time.Duration) {
	p.each(field, texts, func(s Signal, text string) error {
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			out[s] = new(time.Duration) // it is not missing besides
			return errors.New("not a duration such as 1m30s")
		}
		out[s] = &d
		return nil
	})
	return out
}

// threshold reads a value above zero; the zero Value is off.
func threshold(text string) (Value, error) {
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

// minReclaim reads a share above zero, or an amount that may be zero.
func minReclaim(text string) (Value, error) {
	percent, ok := strings.CutSuffix(text, "%")
	if !ok {
		return parseAmount(text)
	}
	share, err := parseShare(percent)
	if err == nil && share == 0 {
		return Value{}, errors.New("a share that is not above 0")
	}
	return Value{Share: share}, err
}

// parseShare reads per cent. Unlike upstream it takes neither what is not a
// number nor a second sign for per cent.
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
	return Value{Amount: whole(q), Text: q.String()}, nil
}
