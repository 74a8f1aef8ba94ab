package cni

import (
	"encoding/json"
	"strings"
	"testing"
)

var documents = []string{
	``, ` `, `null`, `true`, `false`, `nul`, `0`, `-0`, `01`, `1.`, `.1`, `1.5e+7`, `1e`, `-`, `1E5`,
	`""`, `"a`, `"\u00e4\n\/"`, `"\ud83d\ude00"`, `"\ud83d"`, `"\ud83dx"`, `"\ude00\ud83d"`, `"\u12"`, `"\x"`, `"\`, "\"\x01\"", "\"\xff\"", `"\ud83d\u0041"`,
	`[]`, `[1,2]`, `[1,]`, `[,]`, `[1 2]`, `[`, `[[[]]]`, `]`, ` [ 1 , 2 ] `,
	`{}`, `{"a":1}`, `{"a":1,}`, `{"a"}`, `{a:1}`, `{"a":}`, `{"a":1 "b":2}`, `{`, `{"a":{"b":[null]}}`, `{} {}`, ` { "a" : 1 , "b" : 2 } `,
}

// depth returns an upper bound of the nesting of a text.
func depth(text []byte) (most int) {
	deep := 0
	for _, c := range text {
		switch c {
		case '{', '[':
			deep++
		case '}', ']':
			deep--
		}
		most = max(most, deep)
	}
	return most
}

// agrees compares the scanner with encoding/json.
func agrees(t *testing.T, data []byte) {
	t.Helper()
	start := skipSpace(data, 0)
	end, err := scanValue(data, start, maxDepth)
	ok := err == nil && skipSpace(data, end) == len(data)
	if want := json.Valid(data); ok != want && depth(data) < maxDepth {
		t.Fatalf("%q is JSON: %v, want %v (%v)", data, ok, want, err)
	}
	if !ok || data[start] != '"' {
		return
	}
	var want string
	if err := json.Unmarshal(data, &want); err != nil {
		t.Fatal(err)
	}
	if got := string(unquote(data[start:end])); got != want {
		t.Fatalf("%q says %q, want %q", data, got, want)
	}
	var again string
	if err := json.Unmarshal(appendString(nil, string(data)), &again); err != nil || again != strings.ToValidUTF8(string(data), "\ufffd") && !strings.Contains(again, "\ufffd") {
		t.Fatalf("%q is written so that it says %q: %v", data, again, err)
	}
}

func TestScan(t *testing.T) {
	for _, d := range documents {
		agrees(t, []byte(d))
	}
}

func FuzzScan(f *testing.F) {
	for _, d := range documents {
		f.Add([]byte(d))
	}
	f.Fuzz(agrees)
}

func TestNesting(t *testing.T) {
	for deep, ok := range map[int]bool{maxDepth: true, maxDepth + 1: false, 1 << 20: false} {
		text := strings.Repeat("[", deep) + strings.Repeat("]", deep)
		if _, err := scanValue([]byte(text), 0, maxDepth); (err == nil) != ok {
			t.Errorf("%d deep: %v", deep, err)
		}
	}
}
