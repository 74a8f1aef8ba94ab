package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"
)

// output is the value of the flag -o.
type output string

const (
	outputTable output = "table"
	outputJSON  output = "json"
)

func (o *output) String() string { return string(*o) }
func (o *output) Type() string   { return "format" }

func (o *output) Set(s string) error {
	switch output(s) {
	case outputTable, outputJSON:
		*o = output(s)
		return nil
	}
	return errors.New("it must be table or json")
}

func addOutput(cmd *cobra.Command) *output {
	o := outputTable
	cmd.Flags().VarP(&o, "output", "o", "output `format`: table or json")
	return &o
}

// print prints doc with -o json, else the output of write.
func (o *output) print(w io.Writer, doc any, write func(io.Writer) error) error {
	if *o == outputJSON {
		return printJSON(w, doc)
	}
	return write(w)
}

// printJSON prints a document with indentation.
func printJSON(w io.Writer, v any) error {
	enc := newEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// newEncoder returns an encoder that writes each document in one line.
func newEncoder(w io.Writer) *json.Encoder {
	enc := json.NewEncoder(jsonEscaper{w})
	enc.SetEscapeHTML(false)
	return enc
}

// jsonControls escapes the control characters that encoding/json writes raw and
// that a terminal may execute: DEL, and U+0080 to U+009F, of which U+009B starts
// control sequences. They occur only in strings, so it writes them as \u escapes.
var jsonControls = sync.OnceValue(func() *strings.Replacer {
	pairs := []string{"\x7f", `\u007f`}
	for r := rune(0x80); r < 0xa0; r++ {
		pairs = append(pairs, string(r), fmt.Sprintf(`\u%04x`, r))
	}
	return strings.NewReplacer(pairs...)
})

// jsonEscaper applies jsonControls. Each call of Write must have a whole document, as
// from json.Encoder.
type jsonEscaper struct{ w io.Writer }

func (e jsonEscaper) Write(p []byte) (int, error) {
	if _, err := io.WriteString(e.w, jsonControls().Replace(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// table aligns cells in columns, with two spaces between them.
type table struct {
	rows [][]string
}

func (t *table) add(cells ...string) {
	for i := range cells {
		// Leading spaces of a cell are its indentation.
		lead := cells[i][:len(cells[i])-len(strings.TrimLeft(cells[i], " "))]
		cells[i] = lead + clean(cells[i][len(lead):])
	}
	t.rows = append(t.rows, cells)
}

func (t *table) write(to io.Writer) error {
	columns := 0
	for _, row := range t.rows {
		columns = max(columns, len(row))
	}
	var text bytes.Buffer
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, row := range t.rows {
		// A row with fewer cells would end the columns of the rows before it.
		_, _ = io.WriteString(w, strings.Join(row, "\t")+strings.Repeat("\t", columns-len(row))+"\n") // to a buffer
	}
	_ = w.Flush()
	out := bufio.NewWriter(to)
	for line := range strings.Lines(text.String()) {
		out.WriteString(strings.TrimRight(line, " \n"))
		out.WriteByte('\n')
	}
	return out.Flush() // returns the first write error
}

// clockUnset is earlier than any correct time. Earlier times were taken before the
// board's clock was set.
var clockUnset = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

// age formats the time since then as kubectl does. It is ? if then is in the future,
// because the clock was set back in between. A time from before the clock was set counts
// as the time of the boot, or as ? without uptime.
func (s *system) age(then time.Time) string {
	if then.IsZero() {
		return "-"
	}
	d, uptime := s.now().Sub(then), s.uptime()
	if then.Before(clockUnset) {
		if uptime == 0 {
			return "?"
		}
		d = min(d, uptime)
	}
	if d < -2*time.Second { // a smaller difference is rounding
		return "?"
	}
	return duration.HumanDuration(max(d, 0))
}

// ageThisBoot is age for what does not survive a reboot, such as a process.
func (s *system) ageThisBoot(then time.Time) string {
	now, uptime := s.now(), s.uptime()
	if uptime > 0 && !then.IsZero() && now.Sub(then) > uptime {
		then = now.Add(-uptime)
	}
	return s.age(then)
}

// timePointer returns t in UTC, or nil if it is zero.
func timePointer(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// memory formats bytes in the units of Kubernetes quantities; 0 is unknown.
func memory(bytes uint64) string {
	switch {
	case bytes == 0:
		return "-"
	case bytes < 1<<20:
		return fmt.Sprintf("%dKi", (bytes+1<<10-1)>>10)
	case bytes < 10<<20:
		return fmt.Sprintf("%.1fMi", float64(bytes)/(1<<20))
	case bytes < 10<<30:
		return fmt.Sprintf("%dMi", bytes>>20)
	}
	return fmt.Sprintf("%dGi", bytes>>30)
}
