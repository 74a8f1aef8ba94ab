package metricstest

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

// Text returns what write writes to a stream that open, which is metrics.NewStream,
// makes. It fails t for each of the text's Problems.
func Text[S interface{ Flush() error }](t testing.TB, open func(io.Writer) S, write func(S), known ...string) string {
	t.Helper()
	var text bytes.Buffer
	out := open(&text)
	write(out)
	if err := out.Flush(); err != nil {
		t.Fatal(err)
	}
	if problems := Problems(text.Bytes(), known...); len(problems) > 0 {
		t.Errorf("%q in\n%s", problems, text.Bytes())
	}
	return text.String()
}

// WantLines fails t for each line that text does not have. A line may be given
// by its beginning.
func WantLines(t testing.TB, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains("\n"+text, "\n"+line) {
			t.Errorf("no %q in\n%s", line, text)
		}
	}
}
