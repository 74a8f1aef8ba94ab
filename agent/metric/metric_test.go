package metric

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

func TestWrite(t *testing.T) {
	bytesTotal := Counter("tinylet_bytes_total", "Bytes, \\ and\nmore.", "direction", "verb")
	bytesTotal.Add(1<<40+1, "sent", "get")
	bytesTotal.Add(0, "received", "say \"hi\"\n\\")
	plain := Counter("tinylet_starts_total", "Starts.")
	plain.Add(3)
	var out bytes.Buffer
	if err := Write(&out, bytesTotal, Counter("tinylet_nothing_total", "Nothing."), plain); err != nil {
		t.Fatal(err)
	}
	want := `# HELP tinylet_bytes_total Bytes, \\ and\nmore.
# TYPE tinylet_bytes_total counter
tinylet_bytes_total{direction="sent",verb="get"} 1.099511627777e+12
tinylet_bytes_total{direction="received",verb="say \"hi\"\n\\"} 0
# HELP tinylet_starts_total Starts.
# TYPE tinylet_starts_total counter
tinylet_starts_total 3
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(&out)
	if err != nil {
		t.Fatal(err)
	}
	samples := families["tinylet_bytes_total"].GetMetric()
	if len(families) != 2 || len(samples) != 2 || samples[0].GetCounter().GetValue() != 1<<40+1 || samples[1].GetLabel()[1].GetValue() != "say \"hi\"\n\\" {
		t.Errorf("a parser reads %v", families)
	}
}

// A label too many is a fault of the program, and no reason to end the node.
func TestLabelsThatDoNotFit(t *testing.T) {
	f := Counter("a_total", "A.", "x")
	f.Add(1, "1", "2")
	f.Add(2)
	var out bytes.Buffer
	if err := Write(&out, f); err != nil {
		t.Fatal(err)
	}
	if want := "# HELP a_total A.\n# TYPE a_total counter\na_total{x=\"1\"} 1\na_total 2\n"; out.String() != want {
		t.Errorf("text %q", out.String())
	}
}

func TestWriteTellsWhatFailed(t *testing.T) {
	f := Counter("a_total", "A.")
	f.Add(1)
	if err := Write(broken{}, f); !errors.Is(err, errBroken) {
		t.Errorf("error %v", err)
	}
}

var errBroken = errors.New("the reader went away")

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errBroken }
