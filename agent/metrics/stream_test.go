package metrics

import (
	"bytes"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

func parse(t *testing.T, text []byte) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("a parser refuses it: %v\n%s", err, text)
	}
	return families
}

func TestStream(t *testing.T) {
	var out bytes.Buffer
	s := NewStream(&out)
	s.Family(KindGauge, "nothing", "Nothing.")
	s.Family(KindCounter, "a_total", "A, \\ and\n\"more\".")
	pod := AppendLabel(AppendLabel(nil, "pod", "p"), "image", "say \"hi\"\n\\ \xff")
	s.Sample(1<<40+1, pod)
	s.SampleAt(1700000000123, 0.25, pod, nil, AppendLabel(nil, "cpu", "total"))
	s.Family(KindGauge, "b", "B.")
	s.Sample(-1.5)
	var h Histogram
	for _, seconds := range []float64{0.005, 0.006, 11, 11} {
		h.Observe(seconds)
	}
	s.Family(KindHistogram, "c_seconds", "C.")
	s.Histogram(&h, pod[:7])
	s.Histogram(&h)
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	want := `# HELP a_total A, \\ and\n"more".
# TYPE a_total counter
a_total{pod="p",image="say \"hi\"\n\\ ` + "\uFFFD" + `"} 1099511627777
a_total{pod="p",image="say \"hi\"\n\\ ` + "\uFFFD" + `",cpu="total"} 0.25 1700000000123
# HELP b B.
# TYPE b gauge
b -1.5
# HELP c_seconds C.
# TYPE c_seconds histogram
c_seconds_bucket{pod="p",le="0.005"} 1
c_seconds_bucket{pod="p",le="0.01"} 2
`
	if diff := cmp.Diff(want, text[:min(len(want), len(text))]); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
	families := parse(t, out.Bytes())
	if len(families) != 3 || families["nothing"] != nil {
		t.Errorf("families %v", families)
	}
	for _, m := range families["c_seconds"].GetMetric() {
		h := m.GetHistogram()
		if h.GetSampleCount() != 4 || h.GetSampleSum() != 22.011 || len(h.GetBucket()) != 12 || h.GetBucket()[10].GetCumulativeCount() != 2 {
			t.Errorf("histogram %v", h)
		}
	}
	if n := len(families["c_seconds"].GetMetric()); n != 2 {
		t.Errorf("%d histograms", n)
	}
}

func TestStreamTellsWhatFailed(t *testing.T) {
	s := NewStream(broken{})
	s.Family(KindGauge, "a", "A.")
	for range 2 * streamBuffer {
		s.Sample(1)
	}
	if err := s.Flush(); !errors.Is(err, errBroken) || !strings.Contains(err.Error(), "metric a") {
		t.Errorf("error %v", err)
	}
	if cap(s.buf) > 2*streamBuffer {
		t.Errorf("%d bytes are kept for a writer that is gone", cap(s.buf))
	}
}

// FuzzStream compares what is written with what a parser reads.
func FuzzStream(f *testing.F) {
	f.Add("plain", 1.0, int64(0))
	f.Add("\\n\"\n\\", math.Pi, int64(-1))
	f.Add("\xff\u2028", math.Inf(-1), int64(1<<62))
	f.Add("", float64(1<<53), int64(1))
	f.Fuzz(func(t *testing.T, value string, number float64, at int64) {
		var out bytes.Buffer
		s := NewStream(&out)
		s.Family(KindGauge, "a", value)
		s.SampleAt(at, number, AppendLabel(nil, "x", value), AppendLabel(nil, "y", "z"))
		if err := s.Flush(); err != nil {
			t.Fatal(err)
		}
		if lines := bytes.Count(out.Bytes(), []byte{'\n'}); lines != 3 {
			t.Fatalf("%d lines:\n%s", lines, out.Bytes())
		}
		m := parse(t, out.Bytes())["a"].GetMetric()[0]
		if got := m.GetGauge().GetValue(); got != number && !(math.IsNaN(got) && math.IsNaN(number)) {
			t.Errorf("%v is read as %v", number, got)
		}
		if m.GetTimestampMs() != at {
			t.Errorf("at %d, read as %d", at, m.GetTimestampMs())
		}
		for _, l := range m.GetLabel() {
			if l.GetName() == "x" && l.GetValue() != string([]rune(value)) || !utf8.ValidString(l.GetValue()) {
				t.Errorf("%q is read as %q", value, l.GetValue())
			}
		}
	})
}

func BenchmarkStream(b *testing.B) {
	labels := AppendLabel(AppendLabel(AppendLabel(nil, "container", "web"), "namespace", "default"), "pod", "web-0")
	s := NewStream(io.Discard)
	s.Family(KindGauge, "container_memory_working_set_bytes", "B.")
	b.ReportAllocs()
	for b.Loop() {
		s.Sample(123456789, labels)
		s.Sample(1234.56789, labels)
	}
}
