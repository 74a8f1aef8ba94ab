package apiclient

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

func TestRecovery(t *testing.T) {
	down := errors.New("down")
	for _, row := range []struct {
		name     string
		attempts []any // an error or a code of the server's, a second apart
		want     int   // after which of them a recovery is told, -1 for none
	}{
		{"all is well", []any{200, 201, 404}, -1},
		{"an outage", []any{200, down, down, 200, 200}, 3},
		{"the server refuses", []any{200, 403, 429, 500, 200}, -1},
		{"the server is about to go", []any{503, 200}, 1},
		{"the server begins", []any{down, 503, 403, 404, 201}, 4},
		{"it flaps", []any{down, 200, down, 200}, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			var r recovery
			got := -1
			for i, a := range row.attempts {
				back := make(chan struct{})
				r.back = back
				resp := &http.Response{}
				err, _ := a.(error)
				resp.StatusCode, _ = a.(int)
				if err != nil {
					resp = nil
				}
				r.attempt(resp, err, time.Unix(int64(i), 0))
				select {
				case <-back:
					got = i
				default:
				}
			}
			if got != row.want {
				t.Errorf("the last recovery is told after attempt %d, want %d", got, row.want)
			}
		})
	}
}

func TestRecoveredOfAClient(t *testing.T) {
	s := server(t, func(w http.ResponseWriter, _ *http.Request) { answer(t, w, http.StatusOK, podNamed("a")) })
	broken := true
	c := clientOf(t, s, func(c *Config) {
		c.Ready = func(context.Context) error {
			if broken {
				return errors.New("not yet")
			}
			return nil
		}
	})
	back := c.Recovered()
	if err := c.Get(t.Context(), Pods, "default", "a", &v1.Pod{}); err == nil {
		t.Fatal("a request got through")
	}
	select {
	case <-back:
		t.Error("a failure counts as a recovery")
	default:
	}
	broken = false
	if err := c.Get(t.Context(), Pods, "default", "a", &v1.Pod{}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-back:
	default:
		t.Error("the recovery is not told")
	}
	if c.Recovered() == back {
		t.Error("the next recovery is told by the same channel")
	}
}
