package local

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// TestProblem is in the status as long as there is one.
func TestProblem(t *testing.T) {
	problem := ""
	s := newServer(t, Config{Todo: func() []string { return []string{"unmount it"} }, Problem: func() string { return problem }})
	told := func() string {
		t.Helper()
		text, err := json.Marshal(s.status(time.Now()))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if strings.Contains(told(), `"problem"`) {
		t.Errorf("nothing is wrong: %s", told())
	}
	problem = "no bridge"
	if !strings.Contains(told(), `"problem":"no bridge","todo":["unmount it"]`) {
		t.Errorf("something is wrong: %s", told())
	}
}
