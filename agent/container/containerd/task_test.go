package containerd

import (
	"errors"
	"testing"

	"github.com/tinylet/tinylet/agent/container"
)

// task returns a tasks.GetResponse with a Process in a state.
func task(state int64) message {
	var process, m message
	process.text(1, "id")
	process.number(3, 4711)
	process.number(4, state)
	process.number(9, 137)
	m.data(1, process)
	return m
}

func TestEnded(t *testing.T) {
	srv, endpoint := serve(t)
	srv.tasks = map[string]message{
		"created": task(1), "running": task(2), "stopped": task(3), "paused": task(4),
		"silent": {}, "broken": {0x0a, 0xff}, "inner": {0x0a, 0x01, 0x20},
	}
	tasks, err := NewTasks(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		id          string
		want, fails bool
	}{
		{id: "created"},
		{id: "running"},
		{id: "stopped", want: true},
		{id: "paused"},
		{id: "gone", want: true},
		{id: "silent"},
		{id: "broken", fails: true},
		{id: "inner", fails: true},
	} {
		if got, err := tasks.Ended(t.Context(), tc.id); got != tc.want || (err != nil) != tc.fails {
			t.Errorf("%s: %v, %v", tc.id, got, err)
		}
	}
}

func TestEndedWithoutContainerd(t *testing.T) {
	tasks, err := NewTasks("unix://" + t.TempDir() + "/none")
	if err != nil {
		t.Fatal(err)
	}
	if ended, err := tasks.Ended(t.Context(), "id"); ended || !errors.Is(err, container.ErrUnavailable) {
		t.Errorf("%v, %v", ended, err)
	}
	if _, err := NewTasks("tcp://127.0.0.1:1"); err == nil {
		t.Error("an endpoint that is no socket")
	}
}
