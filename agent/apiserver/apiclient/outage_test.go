package apiclient

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestOutageIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		o := NewOutage(slog.New(slog.NewTextHandler(&text, nil)), "it fails", "it works")
		said := func() string {
			defer text.Reset()
			var short []string
			for line := range strings.Lines(text.String()) {
				_, line, _ = strings.Cut(line, "level=")
				short = append(short, strings.TrimSpace(line))
			}
			return strings.Join(short, "; ")
		}
		failure := errors.New("no route")
		for _, step := range []struct {
			do   func()
			want string
			on   bool
		}{
			{func() { o.Record(nil) }, "", false},
			{func() { o.Record(failure) }, `WARN msg="it fails" error="no route"`, true},
			{func() { time.Sleep(time.Minute); o.Record(errors.New("another")) }, "", true},
			{func() { time.Sleep(time.Minute); o.Record(nil) }, `INFO msg="it works" duration=2m0s`, false},
			{func() { o.Record(nil) }, "", false},
			{func() { o.Record(failure) }, `WARN msg="it fails" error="no route"`, true},
			{func() { o.Forget() }, "", false},
			{func() { o.Record(failure) }, `WARN msg="it fails" error="no route"`, true},
		} {
			step.do()
			if got := said(); got != step.want || o.Active() != step.on {
				t.Errorf("said %q, on %v; want %q, %v", got, o.Active(), step.want, step.on)
			}
		}
	})
}
