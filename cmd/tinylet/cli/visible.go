package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"
)

// clean keeps text from outside on one line and off the terminal's control
// characters.
func clean(s string) string {
	// A lone byte such as 0x9b, which begins commands of some terminals, is no
	// rune that could be looked at.
	s = strings.ToValidUTF8(s, string(utf8.RuneError))
	if strings.IndexFunc(s, unprintable) < 0 {
		return s
	}
	return strings.Join(strings.FieldsFunc(s, unprintable), " ")
}

// OneLine joins the lines of an error, without what a terminal would act on: an
// error may quote what a runtime, a registry or a server has said.
func OneLine(err error) string {
	return clean(strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' }), "; "))
}

func unprintable(r rune) bool { return r != ' ' && !unicode.IsPrint(r) }

// addRaw adds the flag that has the output written as it is.
func addRaw(set interface {
	BoolVar(p *bool, name string, value bool, usage string)
}, raw *bool) {
	set.BoolVar(raw, "raw", false, "write control characters to a terminal as they are: they can change its settings and what it shows")
}

// shown is where output from outside goes. A terminal gets control characters
// in a visible form, unless raw is set; what is no terminal gets the bytes as
// they are. flush writes what was held back, and is to be called at the end.
func shown(w io.Writer, raw bool) (out io.Writer, flush func()) {
	if f, ok := w.(*os.File); !ok || raw || !isTerminal(f) {
		return w, func() {}
	}
	v := &visible{to: w}
	return v, v.flush
}

// visible writes ESC as ^[ and other control characters alike, what is not
// printable as \u202e, and bytes that are no UTF-8 as \x9b. Ends of lines,
// tabs and spaces stay. One goroutine may use it at a time.
type visible struct {
	to   io.Writer
	held []byte // a beginning of a rune, or a carriage return
}

// Write implements io.Writer.
func (v *visible) Write(p []byte) (int, error) {
	text := append(v.held, p...)
	v.held = nil
	var out []byte
	for len(text) > 0 {
		if text[0] == '\r' && len(text) == 1 || !utf8.FullRune(text) {
			v.held = append(v.held, text...)
			break
		}
		r, n := utf8.DecodeRune(text)
		switch {
		case r == '\r' && text[1] == '\n':
			out = append(out, '\r')
		case r == utf8.RuneError && n == 1:
			out = fmt.Appendf(out, `\x%02x`, text[0])
		default:
			out = appendVisible(out, r)
		}
		text = text[n:]
	}
	if _, err := v.to.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

func appendVisible(out []byte, r rune) []byte {
	const joiner, nonJoiner = '\u200d', '\u200c' // of scripts and of pictures
	switch {
	case r == '\n', r == '\t', unicode.IsPrint(r), unicode.Is(unicode.Zs, r), r == joiner, r == nonJoiner:
		return utf8.AppendRune(out, r)
	case r < ' ', r == 0x7f:
		return append(out, '^', byte(r)^0x40)
	case r > 0xffff:
		return fmt.Appendf(out, `\U%08x`, r)
	}
	return fmt.Appendf(out, `\u%04x`, r)
}

// flush writes what was held back for bytes that did not come.
func (v *visible) flush() {
	var out []byte
	for _, b := range v.held {
		if b == '\r' {
			out = appendVisible(out, rune(b))
		} else {
			out = fmt.Appendf(out, `\x%02x`, b)
		}
	}
	v.held = nil
	_, _ = v.to.Write(out) // the end of the output, which nobody may read
}
