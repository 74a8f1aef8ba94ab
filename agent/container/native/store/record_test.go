package store

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestExit(t *testing.T) {
	for _, tt := range []struct {
		name string
		exit Exit
		want string // the message, if it is another one
	}{
		{name: "completed", exit: Exit{StartedAt: 1, FinishedAt: 2, Reason: "Completed"}},
		{name: "not started", exit: Exit{Code: 128, FinishedAt: 1 << 62, Reason: "StartError", Message: "no such file: a  b"}},
		{name: "negative", exit: Exit{Code: -1, StartedAt: -1, Reason: "Error"}},
		{name: "no UTF-8", exit: Exit{Reason: "StartError", Message: "a\xffb"}, want: "ab"},
		{name: "long", exit: Exit{Reason: "Error", Message: strings.Repeat("é", maxExitText)}, want: strings.Repeat("é", maxExitText/2)},
		{name: "cut in a character", exit: Exit{Reason: "Error", Message: "a" + strings.Repeat("é", maxExitText)}, want: "a" + strings.Repeat("é", maxExitText/2-1)},
	} {
		text := tt.exit.String()
		got, err := parseExit(text)
		want := tt.exit
		if tt.want != "" {
			want.Message = tt.want
		}
		if err != nil || got != want || !utf8.ValidString(text) {
			t.Errorf("%s: %q: %+v, %v", tt.name, text, got, err)
		}
	}
	for _, text := range []string{"", "0 1 2 Error", "x 1 2 Error ", "4294967296 1 2 Error ", "0 x 2 Error ", "0 1 x Error "} {
		if _, err := parseExit(text); err == nil {
			t.Errorf("%q was parsed", text)
		}
	}
}
