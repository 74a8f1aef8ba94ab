package keeper

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// formatted returns the entries of chunks, without their times: tag and content.
func formatted(chunks ...[]byte) (out []string) {
	e := entries{stream: "stdout"}
	var log []byte
	now := time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC)
	flush := func(data []byte) { log = append(log, data...) }
	var buffer []byte
	for _, chunk := range chunks {
		buffer = e.format(buffer[:0], chunk, now, flush)
		flush(buffer)
	}
	flush(e.end(nil, now))
	const header = "2026-01-02T03:04:05.0000006Z stdout "
	for line := range strings.Lines(string(log)) {
		rest, ok := strings.CutPrefix(line, header)
		if !ok || !strings.HasSuffix(rest, "\n") || len(rest) < 3 {
			return append(out, "bad entry "+line)
		}
		out = append(out, rest[:len(rest)-1])
	}
	return out
}

func TestFormat(t *testing.T) {
	long := strings.Repeat("x", maxLine)
	for _, row := range []struct {
		name   string
		chunks []string
		want   []string
	}{
		{"lines", []string{"a\nbc\n"}, []string{"F a", "F bc"}},
		{"an empty line", []string{"\n"}, []string{"F "}},
		{"no end", []string{"a\nb"}, []string{"F a", "P b"}},
		{"a line in parts", []string{"a", "b", "c\nd\n"}, []string{"F abc", "F d"}},
		{"carriage return", []string{"a\r\n\r\nb\rc\r\n"}, []string{"F a", "F ", "F b\rc"}},
		{"carriage return apart", []string{"a\r", "\n"}, []string{"F a"}},
		{"a last carriage return", []string{"a\r"}, []string{"P a\r"}},
		{"the longest line", []string{long + "\n"}, []string{"F " + long}},
		{"a longer line", []string{long + "y\n"}, []string{"P " + long, "F y"}},
		{"a longer line without end", []string{long + "y"}, []string{"P " + long, "P y"}},
		{"three parts", []string{long + long, "y\nz\n"}, []string{"P " + long, "P " + long, "F y", "F z"}},
		{"the longest line with a carriage return", []string{long + "\r\n"}, []string{"F " + long}},
		{"the same, apart", []string{long + "\r", "\n"}, []string{"F " + long}},
		{"a longer line with a carriage return inside", []string{long + "\r", "y\n"}, []string{"P " + long, "F \ry"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			var chunks [][]byte
			for _, c := range row.chunks {
				chunks = append(chunks, []byte(c))
			}
			if got := formatted(chunks...); fmt.Sprintf("%.40q", got) != fmt.Sprintf("%.40q", row.want) || strings.Join(got, "|") != strings.Join(row.want, "|") {
				t.Errorf("got %.60q, want %.60q", got, row.want)
			}
		})
	}
}

// FuzzFormat checks that the entries have all bytes but the carriage returns at the ends of
// lines, in lines of at most maxLine, however the output is read.
func FuzzFormat(f *testing.F) {
	f.Add([]byte("a\nb\r\nc"), 2)
	f.Add(bytes.Repeat([]byte("x"), maxLine+1), maxLine)
	f.Add([]byte(strings.Repeat("x", maxLine)+"\r\n"), maxLine+1)
	f.Fuzz(func(t *testing.T, data []byte, cut int) {
		if cut < 0 || cut > len(data) {
			cut = len(data) / 2
		}
		whole, parts := formatted(data), formatted(data[:cut], data[cut:])
		if strings.Join(whole, "\n") != strings.Join(parts, "\n") {
			t.Errorf("read at once: %.80q, in two parts: %.80q", whole, parts)
		}
		var content strings.Builder
		for _, e := range whole {
			tag, text := e[:2], e[2:]
			if len(text) > maxLine+1 {
				t.Errorf("an entry has %d bytes", len(text))
			}
			content.WriteString(text)
			if tag == "F " {
				content.WriteByte('\n')
			}
		}
		if want := strings.ReplaceAll(string(data), "\r\n", "\n"); content.String() != want {
			t.Errorf("the content is %.80q, want %.80q", content.String(), want)
		}
	})
}

// TestFormatFlushes bounds the buffer: each byte of the output may become an entry.
func TestFormatFlushes(t *testing.T) {
	e := entries{stream: "stdout"}
	largest, total := 0, 0
	flush := func(data []byte) {
		largest, total = max(largest, len(data)), total+bytes.Count(data, []byte{'\n'})
	}
	rest := e.format(nil, bytes.Repeat([]byte{'\n'}, 100_000), time.Now(), flush)
	total += bytes.Count(rest, []byte{'\n'})
	if largest > flushSize+maxLine || total != 100_000 {
		t.Errorf("%d entries, and up to %d bytes of them at once", total, largest)
	}
}

func TestLogFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pod", "0.log")
	l := logFile{path: path, fd: -1}
	if err := l.open(); err != nil {
		t.Fatal(err)
	}
	l.write([]byte("a\n"))
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	l.write([]byte("b\n"))
	if err := l.reopen(); err != nil {
		t.Fatal(err)
	}
	l.write([]byte("c\n"))
	for path, want := range map[string]string{path + ".1": "a\nb\n", path: "c\n"} {
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s has %q, %v; want %q", path, got, err, want)
		}
	}
	if err := os.WriteFile(path, []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := l.reopen(); err != nil {
		t.Fatal(err)
	}
	l.write([]byte("d\n"))
	if got, err := os.ReadFile(path); err != nil || string(got) != "torn\nd\n" {
		t.Errorf("after a torn entry the log has %q, %v", got, err)
	}
	l.close()
	full := logFile{path: "/dev/full", fd: -1}
	if err := full.open(); err != nil {
		t.Fatal(err)
	}
	full.write([]byte("12345\n"))
	if full.lost() != 6 {
		t.Errorf("a full disk has dropped %d bytes, want 6", full.lost())
	}
	full.close()
}
