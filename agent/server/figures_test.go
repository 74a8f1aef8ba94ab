package server

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestWantsGzip(t *testing.T) {
	for value, want := range map[string]bool{
		"": false, "gzip": true, "GZIP": true, "deflate, gzip": true, "gzip;q=0": false, "gzip;q=0.0": false, "gzip; q=0.5": true,
		"gzip;Q=1": true, "gzip;q=x": false, "gzip;q=nan": false, "identity": false, "xgzip": false, "*": false, "deflate,gzip;level=1": true,
	} {
		if got := acceptsGzip(http.Header{"Accept-Encoding": {value}}); got != want {
			t.Errorf("%q: %v", value, got)
		}
	}
	if !acceptsGzip(http.Header{"Accept-Encoding": {"deflate", "gzip"}}) {
		t.Error("a second line is passed over")
	}
}

func TestMetricsAreCompressed(t *testing.T) {
	long := strings.Repeat("container_last_seen{container=\"app\"} 1\n", 1000)
	b := newBoard(t)
	b.config.CadvisorMetrics = func(_ context.Context, w io.Writer) error {
		for piece := range strings.Lines(long) {
			if _, err := io.WriteString(w, piece); err != nil {
				return err
			}
		}
		return nil
	}
	b.start()
	s := b.server
	admin := b.admin()
	for _, tt := range []struct {
		path, accept, want string
		zipped, crowded    bool
	}{
		{path: "/metrics/cadvisor", want: long},
		{path: "/metrics/cadvisor", accept: "gzip", want: long, zipped: true},
		{path: "/metrics/cadvisor", accept: "gzip", want: long, crowded: true},
		{path: "/metrics/cadvisor", accept: "gzip", want: long, zipped: true}, // places came back
		{path: "/metrics", accept: "gzip", want: "a 1\n"},                     // not worth it
	} {
		if tt.crowded {
			for s.deflate.places.try() {
			}
		}
		response, err := b.send(t.Context(), admin, "GET", tt.path, http.Header{"Accept-Encoding": {tt.accept}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		zipped := response.Header.Get("Content-Encoding") == "gzip"
		text := b.read(response).text
		if zipped {
			if len(text) > len(long)/10 {
				t.Errorf("%d bytes", len(text))
			}
			z, err := gzip.NewReader(strings.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			data, err := io.ReadAll(z)
			if err != nil {
				t.Fatal(err)
			}
			text = string(data)
		}
		if zipped != tt.zipped || text != tt.want {
			t.Errorf("%+.30v: compressed %v, %d bytes", tt, zipped, len(text))
		}
		if tt.crowded {
			for range maxGzipWriters {
				s.deflate.places.free()
			}
		}
	}
}

// TestBrokenAnswers: an error before the first byte is a 500; a later one must abort
// the response.
func TestBrokenAnswers(t *testing.T) {
	failure := errors.New("no cgroups")
	long := strings.Repeat("x", 64<<10)
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		for _, encoding := range []string{"", "gzip"} {
			b := newBoard(t)
			begin := ""
			b.config.Metrics = func(_ context.Context, w io.Writer) error {
				if begin != "" {
					if _, err := io.WriteString(w, begin); err != nil {
						return err
					}
				}
				return failure
			}
			b.start()
			admin := b.over(protocol, b.adminCertificate())
			header := http.Header{"Accept-Encoding": {encoding}}
			response, err := b.send(t.Context(), admin, "GET", "/metrics", header, nil)
			if err != nil {
				t.Fatal(err)
			}
			if encoding := response.Header.Get("Content-Encoding"); encoding != "" {
				t.Errorf("%s: an error in %s", protocol, encoding)
			}
			if got := b.read(response); begin == "" && (got.code != 500 || got.text != "Internal Error: no cgroups") {
				t.Errorf("%s %s: %d %q", protocol, encoding, got.code, got.text)
			}
			begin = long
			response, err = b.send(t.Context(), admin, "GET", "/metrics", header, nil)
			if err != nil {
				continue // before the first byte
			}
			if response.Proto != protocol {
				t.Errorf("%s, want %s", response.Proto, protocol)
			}
			if _, err := io.ReadAll(response.Body); err == nil {
				t.Errorf("%s %s: half an answer looks whole", protocol, encoding)
			}
			response.Body.Close()
		}
	}
}

func TestSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := make(slot, 1)
		if !s.wait(t.Context(), time.Second) {
			t.Fatal("no place in an empty slot")
		}
		begun := time.Now()
		if s.wait(t.Context(), time.Second) || time.Since(begun) != time.Second {
			t.Errorf("waited %v", time.Since(begun))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if s.wait(ctx, time.Second) || s.try() {
			t.Error("two in one place")
		}
		time.AfterFunc(time.Millisecond, s.free)
		if !s.wait(t.Context(), time.Second) {
			t.Error("a place that was given back is not had")
		}
	})
}

// TestBusy: the snapshot slots are limited, and a request that waits too long gets a
// 503.
func TestBusy(t *testing.T) {
	b := newBoard(t)
	b.start()
	for b.server.slots.requests.try() {
	}
	got := b.ask(b.admin(), "GET", "/healthz")
	if got.code != http.StatusTooManyRequests || got.header.Get("Retry-After") != "1" {
		t.Errorf("%d %v", got.code, got.header)
	}
	for range maxRequests {
		b.server.slots.requests.free()
	}
	if got := b.ask(b.admin(), "GET", "/healthz"); got.code != http.StatusOK {
		t.Errorf("%d", got.code)
	}
}
