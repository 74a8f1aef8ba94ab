package cli

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/tinylet/tinylet/agent/server/local"
)

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"plain: ä 日本 🙂": "plain: ä 日本 🙂", "a\x1b[31mb": "a [31mb", "a\u009b31mb": "a 31mb", "a\x9b31mb": "a\ufffd31mb", "a\nb\r\tc": "a b c",
		"a\u202eb": "a b", "\x9b\x1b": "\ufffd", "": "",
	} {
		if got := clean(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// escapeText returns the escaped text, written in pieces of n bytes.
func escapeText(text string, n int) string {
	var out writes
	v := &escaper{to: &out}
	for len(text) > 0 {
		k := min(n, len(text))
		if wrote, err := v.Write([]byte(text[:k])); wrote != k || err != nil {
			panic("a short write")
		}
		text = text[k:]
	}
	v.flush()
	return string(out)
}

type writes []byte

func (w *writes) Write(p []byte) (int, error) {
	*w = append(*w, p...)
	return len(p), nil
}

func TestEscaper(t *testing.T) {
	for in, want := range map[string]string{
		"plain\tä 日本\u3000\u00a0🙂\n":      "plain\tä 日本\u3000\u00a0🙂\n",
		"windows\r\nbar 10%\rbar 20%\r\n": "windows\r\nbar 10%^Mbar 20%\r\n",
		"\x1b]0;title\x07\x1b[2J\x7f\x00": "^[]0;title^G^[[2J^?^@",
		"\u009b31m \x9b31m \u202egnp.exe": `\u009b31m \x9b31m \u202egnp.exe`,
		"\U000e0041 \ufffd":               "\\U000e0041 \ufffd",
		"family 👨\u200d👩":                 "family 👨\u200d👩",
		"torn \xf0\x9f":                   `torn \xf0\x9f`,
		"end\r":                           "end^M",
	} {
		for n := 1; n <= len(in); n++ {
			if got := escapeText(in, n); got != want {
				t.Errorf("%q in pieces of %d: %q, want %q", in, n, got, want)
			}
		}
	}
}

func FuzzEscaper(f *testing.F) {
	for _, s := range []string{"", "a\x1b[31m", "\xc2", "\xf0\x9f\x99\x82\r\n", "\r\r\n"} {
		f.Add(s, 1)
	}
	f.Fuzz(func(t *testing.T, text string, n int) {
		got := escapeText(text, max(n, 1))
		for i, r := range got {
			if unprintable(r) && r != '\n' && r != '\t' && r != '\u200c' && r != '\u200d' && !isSpace(r) && !(r == '\r' && got[i+1] == '\n') {
				t.Errorf("%q: %q is in %q", text, r, got)
			}
		}
		if whole := escapeText(text, max(len(text), 1)); got != whole {
			t.Errorf("%q: %q in pieces, %q at once", text, got, whole)
		}
	})
}

func isSpace(r rune) bool { return string(appendEscaped(nil, r)) == string(r) && r > 0x7f }

// TestTerminalWriter checks that only terminals get escaped output, and not with --raw.
func TestTerminalWriter(t *testing.T) {
	person, program := pty(t)
	read := func() string {
		buf := make([]byte, 64)
		n, err := person.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		return string(buf[:n])
	}
	for raw, want := range map[bool]string{false: "a^[[2Jb", true: "a\x1b[2Jb"} {
		out, flush := terminalWriter(program, raw)
		if _, err := io.WriteString(out, "a\x1b[2Jb"); err != nil {
			t.Fatal(err)
		}
		flush()
		if got := read(); got != want {
			t.Errorf("raw %v: %q, want %q", raw, got, want)
		}
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	for _, to := range []io.Writer{w, new(writes)} {
		if out, _ := terminalWriter(to, false); out != to {
			t.Errorf("%T is taken for a terminal", to)
		}
	}
}

// TestHostileOutput has a container that writes control sequences.
func TestHostileOutput(t *testing.T) {
	pods := samplePods()
	n := newNode(t, pods, nil, sessions(func(sh *shell) {
		sh.say("stdout", "out\x1b[2J")
		sh.say("stderr", "err\x9b2J")
		sh.exit(0)
	}))
	pods[1].Containers = []local.Container{{Name: "main", LogPath: n.log(t, "default_crash-board_7f2c/main/4.log", "2026-05-06T07:00:00Z stdout F log\x1b[2J\n")}}
	for _, tt := range []struct{ args, want []string }{
		{[]string{"logs", "crash"}, []string{"log^[[2J\r\n"}},
		{[]string{"logs", "crash", "--raw"}, []string{"log\x1b[2J\r\n"}},
		{[]string{"exec", "crash", "--socket", n.socket, "--", "ls"}, []string{"out^[[2J", `err\x9b2J`}},
		{[]string{"exec", "crash", "--socket", n.socket, "--raw", "--", "ls"}, []string{"out\x1b[2J", "err\x9b2J"}},
	} {
		person, program := pty(t)
		if err := n.runTo(t, program, program, tt.args...); err != nil {
			t.Fatalf("%q: %v", tt.args, err)
		}
		program.Close()
		got, _ := io.ReadAll(person) // the end is an error (EIO)
		for _, want := range tt.want {
			if !strings.Contains(string(got), want) {
				t.Errorf("%q: %q, want %q", tt.args, got, want)
			}
		}
	}
}

// TestOneLine has errors with untrusted text.
func TestOneLine(t *testing.T) {
	for in, want := range map[string]string{
		"a\nb":                      "a; b",
		"pull: \x1b]0;x\x07\x1b[2J": "pull:  ]0;x [2J",
		"status \x9b31m \u009b31m":  "status \ufffd31m  31m",
	} {
		if got := OneLine(errors.New(in)); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
