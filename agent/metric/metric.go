// Package metric owns the form in which the agent tells Prometheus of itself:
// families of samples, written as text (version 0.0.4 of the exposition
// format). Nothing is kept between two reads; who has a number makes its
// family when it is asked for.
package metric

import (
	"fmt"
	"io"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// ContentType is the media type of what Write writes.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// Family is the samples of one name.
type Family struct {
	family dto.MetricFamily
	labels []string
}

// Counter makes the family of a counter: a number that only grows while the
// process lives, whose name ends in _total. Labels are the names of what each
// sample differs by.
func Counter(name, help string, labels ...string) *Family {
	return &Family{
		family: dto.MetricFamily{Name: &name, Help: &help, Type: dto.MetricType_COUNTER.Enum()},
		labels: labels,
	}
}

// Add adds a sample with the values of the family's labels, in their order.
func (f *Family) Add(value float64, labels ...string) {
	sample := &dto.Metric{Counter: &dto.Counter{Value: &value}}
	for i := range min(len(labels), len(f.labels)) {
		sample.Label = append(sample.Label, &dto.LabelPair{Name: &f.labels[i], Value: &labels[i]})
	}
	f.family.Metric = append(f.family.Metric, sample)
}

// Write writes families. One without samples is left out.
func Write(w io.Writer, families ...*Family) error {
	for _, f := range families {
		if len(f.family.Metric) == 0 {
			continue
		}
		if _, err := expfmt.MetricFamilyToText(w, &f.family); err != nil {
			return fmt.Errorf("write metric %s: %w", f.family.GetName(), err)
		}
	}
	return nil
}
