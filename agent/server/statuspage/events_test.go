package statuspage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tinylet/tinylet/agent/server/local"
)

// browser is a client of server-sent events. It records the time and the node
// name of each.
type browser struct {
	mu      sync.Mutex
	began   time.Time
	pending bytes.Buffer
	seen    []string
	stuck   bool // reads no more: writing fails at its deadline
	limit   time.Time
	header  http.Header
	code    int
}

func newBrowser() *browser { return &browser{began: time.Now(), header: http.Header{}, code: 200} }

func (b *browser) Header() http.Header  { return b.header }
func (b *browser) WriteHeader(code int) { b.code = code }

func (b *browser) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stuck {
		wait := time.Until(b.limit)
		b.mu.Unlock()
		time.Sleep(wait)
		b.mu.Lock()
		return 0, errors.New("deadline")
	}
	return b.pending.Write(text)
}

func (b *browser) SetWriteDeadline(limit time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.limit = limit
	return nil
}

func (b *browser) FlushError() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	text := b.pending.String()
	b.pending.Reset()
	name := "?"
	if _, rest, ok := strings.Cut(text, `"node":{"name":"`); ok {
		name, _, _ = strings.Cut(rest, `"`)
	}
	if rest, ok := strings.CutPrefix(text, "event: trouble\n"); ok {
		name = "trouble:" + strings.TrimSpace(rest)
	}
	if !strings.HasSuffix(text, "\n\n") || strings.Count(text, "data: ") != 1 {
		name = "broken:" + text
	}
	b.seen = append(b.seen, fmt.Sprintf("%v %s", time.Since(b.began), name))
	return nil
}

func (b *browser) take() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := strings.Join(b.seen, ", ")
	b.seen = nil
	return out
}

// watch watches until ctx ends, and then closes done.
func watch(ctx context.Context, p *Page, b *browser) (done chan struct{}) {
	done = make(chan struct{})
	r := httptest.NewRequestWithContext(ctx, "GET", "/page/events", nil)
	r.Host = "localhost"
	go func() {
		defer close(done)
		p.ServeHTTP(b, r)
	}()
	return done
}

func named(name string) *State { return &State{Node: Node{NodeUsage: local.NodeUsage{Name: name}}} }

func TestEventsComeWhenSomethingChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &board{state: named("a")}
		p := newPage(t, source, nil)
		b := newBrowser()
		ctx, cancel := context.WithCancel(t.Context())
		done := watch(ctx, p, b)
		expect := func(after time.Duration, want string) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if got := b.take(); got != want {
				t.Errorf("at %v: %q, want %q", time.Since(b.began), got, want)
			}
		}
		expect(0, "0s a")
		expect(2*time.Second, "1.5s a") // CPU is known now
		expect(10*time.Second, "6.5s a, 11.5s a")
		source.become(named("b")) // at 12s, half a second after the last
		source.become(named("c"))
		expect(0, "")
		expect(time.Second, "12.5s c")
		expect(time.Second, "") // 14s
		source.become(named("d"))
		expect(0, "14s d")
		source.err = errors.New("gone\nfor\rnow")
		source.become(nil)
		expect(2*time.Second, "15s trouble:data: read node state: gone for now")
		reads, slots := source.counts()
		if slots != 1 {
			t.Errorf("%d slots", slots)
		}
		cancel()
		<-done
		time.Sleep(time.Hour)
		if now, slots := source.counts(); now != reads || slots != 0 || p.last != nil || len(p.watches) != 0 {
			t.Errorf("after the last watcher: %d reads more, %d slots, %d bytes", now-reads, slots, len(p.last))
		}
	})
}

func TestTroubleIsOneLine(t *testing.T) {
	if got := singleLine("a\nb\r\n\tc"); got != "a b   c" {
		t.Errorf("line = %q", got)
	}
}

func TestWatchersAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &board{state: named("a")}
		p := newPage(t, source, nil)
		ctx, cancel := context.WithCancel(t.Context())
		var done []chan struct{}
		for range maxWatches {
			done = append(done, watch(ctx, p, newBrowser()))
		}
		synctest.Wait()
		late := newBrowser()
		<-watch(ctx, p, late)
		if late.code != http.StatusServiceUnavailable || late.header.Get("Retry-After") == "" {
			t.Errorf("one too many was answered %d", late.code)
		}
		if resp := ask(t, p, "GET", "localhost", "/page/state"); resp.StatusCode != 200 {
			t.Errorf("a question beside them: %d", resp.StatusCode)
		}
		cancel()
		for _, d := range done {
			<-d
		}
		again := newBrowser()
		ctx, cancel = context.WithCancel(t.Context())
		d := watch(ctx, p, again)
		synctest.Wait()
		cancel()
		if <-d; again.take() != "0s a" {
			t.Error("nobody may watch any more")
		}
	})
}

// TestWatchersShareWhatWasRead starts watchers at the same time: they need the
// state at the same times, so one read serves all.
func TestWatchersShareWhatWasRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &board{state: named("a")}
		p := newPage(t, source, nil)
		ctx, cancel := context.WithCancel(t.Context())
		var done []chan struct{}
		for range maxWatches {
			done = append(done, watch(ctx, p, newBrowser()))
		}
		time.Sleep(time.Minute)
		reads, _ := source.counts()
		if most := 1 + 1 + 12; reads > most {
			t.Errorf("%d readings for %d watchers in a minute, want %d", reads, maxWatches, most)
		}
		cancel()
		for _, d := range done {
			<-d
		}
	})
}

func TestSlowReaderIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &board{state: named("a")}
		p := newPage(t, source, nil)
		slow, quick := newBrowser(), newBrowser()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		slowDone, quickDone := watch(ctx, p, slow), watch(ctx, p, quick)
		synctest.Wait()
		slow.mu.Lock()
		slow.stuck = true
		slow.mu.Unlock()
		<-slowDone
		if took := time.Since(slow.began); took != firstPeriod+writeTimeout {
			t.Errorf("cut off after %v", took)
		}
		if got := quick.take(); got != "0s a, 1.5s a, 6.5s a, 11.5s a" && got != "0s a, 1.5s a, 6.5s a" {
			t.Errorf("meanwhile the other saw %s", got)
		}
		cancel()
		<-quickDone
	})
}

func TestStateThatHangsEndsWithTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := func(ctx context.Context) (*State, error) { <-ctx.Done(); return nil, context.Cause(ctx) }
		source := &board{}
		p := newPage(t, source, nil)
		p.config.State = hang
		ctx, cancel := context.WithCancel(t.Context())
		first, second := watch(ctx, p, newBrowser()), watch(ctx, p, newBrowser())
		synctest.Wait()
		cancel()
		<-first
		<-second
	})
}

// TestEventsOverTheNetwork has a server with deadlines, and a client that
// disconnects.
func TestEventsOverTheNetwork(t *testing.T) {
	source := &board{state: named("a")}
	p := newPage(t, source, nil)
	ended := make(chan struct{})
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		p.ServeHTTP(w, r)
	}))
	srv.Config.WriteTimeout = 300 * time.Millisecond
	srv.Start()
	defer srv.Close()
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(conn, "GET /page/events HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	buf, text := make([]byte, 4096), ""
	for strings.Count(text, `"name":"a"`) < 2 { // the second is past the server's deadline
		n, err := conn.Read(buf)
		if err != nil {
			t.Fatalf("%v after %q", err, text)
		}
		text += string(buf[:n])
	}
	if !strings.Contains(text, "Content-Type: text/event-stream\r\n") {
		t.Errorf("answered %q", text)
	}
	conn.Close()
	<-ended
	if _, slots := source.counts(); slots != 0 {
		t.Errorf("%d slots are left", slots)
	}
}
