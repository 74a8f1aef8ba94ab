package metricstest

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

// Render returns what write writes to a stream that open returns. open is
// metrics.NewStream. It fails t if the text has Problems, except for the known
// ones.
func Render[S interface{ Flush() error }](t testing.TB, open func(io.Writer) S, write func(S), known ...string) string {
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

// WantLines fails t for each line that text does not contain. A prefix of a line
// is enough.
func WantLines(t testing.TB, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains("\n"+text, "\n"+line) {
			t.Errorf("no %q in\n%s", line, text)
		}
	}
}
