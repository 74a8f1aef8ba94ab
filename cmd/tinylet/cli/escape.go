package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/pflag"
)

// clean replaces each run of control characters, newlines included, and other
// unprintable characters in untrusted text with a space, and removes those at its ends.
func clean(s string) string {
	// unprintable does not check bytes that are invalid UTF-8, such as 0x9b, which
	// starts control sequences on some terminals.
	s = strings.ToValidUTF8(s, string(utf8.RuneError))
	if strings.IndexFunc(s, unprintable) < 0 {
		return s
	}
	return strings.Join(strings.FieldsFunc(s, unprintable), " ")
}

// OneLine joins the lines of an error and removes control characters: an error may
// quote untrusted text of a runtime, a registry or a server.
func OneLine(err error) string {
	return clean(strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' }), "; "))
}

func unprintable(r rune) bool { return r != ' ' && !unicode.IsPrint(r) }

// addRaw adds the flag that disables the escaping of control characters.
func addRaw(set *pflag.FlagSet, raw *bool) {
	set.BoolVar(raw, "raw", false, "print control characters unchanged on a terminal, where they can change its settings and its content")
}

// terminalWriter returns a writer for untrusted output. If w is a terminal and raw is
// not set, it escapes control characters; otherwise it returns w. The caller must call
// flush after the last write, which writes the incomplete rest.
func terminalWriter(w io.Writer, raw bool) (out io.Writer, flush func()) {
	if f, ok := w.(*os.File); !ok || raw || !isTerminal(f) {
		return w, func() {}
	}
	e := &escaper{to: w}
	return e, e.flush
}

// escaper writes ESC as ^[ and other control characters likewise, unprintable
// characters as in \u202e, and invalid UTF-8 as in \x9b. It does not change newlines,
// tabs and spaces. It is not safe for concurrent use.
type escaper struct {
	to      io.Writer
	pending []byte // an incomplete rune or a carriage return
}

func (e *escaper) Write(p []byte) (int, error) {
	text := append(e.pending, p...)
	e.pending = nil
	var out []byte
	for len(text) > 0 {
		if text[0] == '\r' && len(text) == 1 || !utf8.FullRune(text) {
			e.pending = append(e.pending, text...)
			break
		}
		r, n := utf8.DecodeRune(text)
		switch {
		case r == '\r' && text[1] == '\n':
			out = append(out, '\r')
		case r == utf8.RuneError && n == 1:
			out = fmt.Appendf(out, `\x%02x`, text[0])
		default:
			out = appendEscaped(out, r)
		}
		text = text[n:]
	}
	if _, err := e.to.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// appendEscaped appends r, escaped if it is not printable.
func appendEscaped(out []byte, r rune) []byte {
	const joiner, nonJoiner = '\u200d', '\u200c' // for scripts and emoji
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

// flush writes the pending bytes, which were not completed.
func (e *escaper) flush() {
	var out []byte
	for _, b := range e.pending {
		if b == '\r' {
			out = appendEscaped(out, rune(b))
		} else {
			out = fmt.Appendf(out, `\x%02x`, b)
		}
	}
	e.pending = nil
	_, _ = e.to.Write(out) // the reader of the output may have stopped
}
