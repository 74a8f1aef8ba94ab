package cli

import (
	"encoding/json"
	"fmt"
	"io"
)

// printJSON prints a document that people can read.
func printJSON(w io.Writer, v any) error {
	enc := newEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// newEncoder writes a document in each line.
func newEncoder(w io.Writer) *json.Encoder {
	enc := json.NewEncoder(tame{w})
	enc.SetEscapeHTML(false)
	return enc
}

// tame keeps off a terminal what JSON lets through raw: DEL, and the control
// characters from U+0080 to U+009F, of which U+009B begins commands. In JSON they
// can be in strings alone, so they are written as escapes. It is to be written
// whole documents, as json.Encoder does.
type tame struct{ w io.Writer }

// Write implements io.Writer.
func (t tame) Write(p []byte) (int, error) {
	if _, err := t.w.Write(escaped(p)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// escaped is a document without raw control characters; the same bytes, where
// there are none.
func escaped(p []byte) []byte {
	var out []byte
	from := 0
	for i := 0; i < len(p); i++ {
		begin, r := i, p[i]
		if r == 0xc2 && i+1 < len(p) && p[i+1] < 0xa0 { // so UTF-8 has them
			i++
			r = p[i]
		} else if r != 0x7f {
			continue
		}
		out = fmt.Appendf(append(out, p[from:begin]...), `\u%04x`, r)
		from = i + 1
	}
	if from == 0 {
		return p
	}
	return append(out, p[from:]...)
}
