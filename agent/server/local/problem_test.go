package local

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tinylet/tinylet/agent/pod/event"
)

// TestProblem is in the status as long as there is one.
func TestProblem(t *testing.T) {
	s, err := New(Config{
		Todo: func() []string { return []string{"unmount it"} },
		Pods: func(context.Context) []Pod { return nil }, Events: func() []event.Event { return nil }, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	told := func() string {
		t.Helper()
		text, err := json.Marshal(s.status(time.Now()))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	problem := ""
	if strings.Contains(told(), `"problem"`) {
		t.Errorf("nobody tells: %s", told())
	}
	s.config.Problem = func() string { return problem }
	if strings.Contains(told(), `"problem"`) {
		t.Errorf("nothing is wrong: %s", told())
	}
	problem = "no bridge"
	if !strings.Contains(told(), `"problem":"no bridge","todo":["unmount it"]`) {
		t.Errorf("something is wrong: %s", told())
	}
}
