package local

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestUsage(t *testing.T) {
	full := &Usage{
		Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Node: NodeUsage{
			Name: "board", CPUNanoCores: new(uint64(0)), Cores: 4, MemoryBytes: 1, MemoryAvailableBytes: 2, MemoryCapacityBytes: 3,
			Pressure: &Pressure{CPU: 1.5},
		},
		Classes: []CgroupUsage{{Name: "Burstable", CPUNanoCores: new(uint64(1 << 40)), MemoryBytes: 1 << 40}},
		Agent:   &CgroupUsage{Name: "tinylet"},
		Pods: []PodUsage{{Namespace: "default", Name: "web", UID: "1", Status: "Running", Restarts: 3, Containers: []ContainerUsage{
			{Name: "c", State: "Running", CPUNanoCores: new(uint64(7)), MemoryBytes: 5},
		}}},
	}
	for name, row := range map[string]struct {
		usage func(context.Context) (*Usage, error)
		want  *Usage
		err   string
	}{
		"everything":      {usage: func(context.Context) (*Usage, error) { return full, nil }, want: full},
		"no pods":         {usage: func(context.Context) (*Usage, error) { return &Usage{Pods: []PodUsage{}}, nil }, want: &Usage{Pods: []PodUsage{}}},
		"nobody measures": {err: "not available"},
		"it fails":        {usage: func(context.Context) (*Usage, error) { return nil, errors.New("no cgroups") }, err: "no cgroups"},
	} {
		t.Run(name, func(t *testing.T) {
			c := start(t, Config{Usage: row.usage})
			got, err := c.Usage(t.Context())
			if row.err != "" {
				if err == nil || !strings.Contains(err.Error(), row.err) || got != nil {
					t.Errorf("usage %+v, %v", got, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("usage (-want +got):\n%s", diff)
			}
		})
	}
	resp, err := start(t, Config{}).http.Get("http://tinylet" + PathUsage)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusNotFound {
		t.Errorf("where nobody measures: %s", resp.Status)
	}
}

// TestPageBesideHealthz shows that the page serves its own paths and no others.
func TestPageBesideHealthz(t *testing.T) {
	page := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "page "+r.Method) })
	for _, tt := range []struct {
		page               http.Handler
		method, path, want string
		code               int
	}{
		{page, "GET", "/", "page GET", 200},
		{page, "POST", "/", "page POST", 200}, // it refuses by itself
		{page, "GET", "/page/state", "page GET", 200},
		{page, "GET", "/page/any/other", "page GET", 200},
		{page, "GET", "/healthz", "ok", 200},
		{page, "GET", "/healthz/ping", "ok", 200},
		{page, "GET", "/healthz/nothing", "404 page not found\n", 404},
		{page, "GET", "/other", "404 page not found\n", 404},
		{nil, "GET", "/", "404 page not found\n", 404},
		{nil, "GET", "/page/state", "404 page not found\n", 404},
		{nil, "GET", "/healthz", "ok", 200},
	} {
		s := newServer(t, Config{Page: tt.page})
		w := &recorded{header: http.Header{}, code: 200}
		r, err := http.NewRequestWithContext(t.Context(), tt.method, "http://board"+tt.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		s.healthz().ServeHTTP(w, r)
		if w.code != tt.code || w.body.String() != tt.want {
			t.Errorf("%s %s answered %d %q, want %d %q", tt.method, tt.path, w.code, w.body.String(), tt.code, tt.want)
		}
	}
}
