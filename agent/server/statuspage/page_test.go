package statuspage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tinylet/tinylet/agent/server/local"
)

// hostile is a malicious name of a pod and message of an event.
const hostile = `<img src=x onerror="window.pwned=1"></script><script>window.pwned=1</script>&amp;'"` + "\u2028"

// sample is a state with data of each kind, and n pods.
func sample(n int) *State {
	now := time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	s := &State{
		Time: now,
		Node: Node{
			NodeUsage: local.NodeUsage{
				Name: "kitchen-pi", CPUNanoCores: new(uint64(431_000_000)), Cores: 4,
				MemoryBytes: 301 << 20, MemoryAvailableBytes: 159 << 20, MemoryCapacityBytes: 460 << 20,
				Pressure: &local.Pressure{CPU: 1.26, IO: 12.5},
			},
			Version: "v1.36.0+tinylet.0.1.0", Platform: "linux/arm", Started: ago(53 * time.Hour),
			Agent: &local.CgroupUsage{Name: "tinylet", CPUNanoCores: new(uint64(2_100_000)), MemoryBytes: 21 << 20},
		},
		Checks: []Check{{Name: "syncloop"}, {Name: "runtime", Problem: "the runtime has not answered for 40s"}},
		Conditions: []Condition{
			{Condition: local.Condition{Type: "Ready", Status: "False", Reason: "KubeletNotReady", Message: "container runtime is down", Since: ago(40 * time.Second)}},
			{Condition: local.Condition{Type: "MemoryPressure", Status: "False", Since: ago(53 * time.Hour)}, Good: true},
		},
		Server: &local.Cluster{
			Registered: true, LastResponse: new(ago(3 * time.Second)), Failure: "dial tcp 10.0.0.1:6443: connect: no route to host",
			Expires: new(now.AddDate(1, 0, 0)), Sent: 4 << 20, Received: 300 << 10, SentToday: 1 << 20, ReceivedToday: 200 << 10, Metered: true,
			Problem: "put a new token into /etc/kubernetes/bootstrap-kubelet.conf",
		},
		Classes: []local.CgroupUsage{
			{Name: "Guaranteed", CPUNanoCores: new(uint64(3_000_000)), MemoryBytes: 24 << 20},
			{Name: "Burstable", CPUNanoCores: new(uint64(300_000_000)), MemoryBytes: 190 << 20},
			{Name: "BestEffort", MemoryBytes: 9 << 20},
		},
		Events: []Event{
			{Pod: "default/web-kitchen-pi", Warning: true, Reason: "BackOff", Message: "back-off 80s restarting failed container=" + hostile, Count: 7, Last: ago(20 * time.Second)},
			{Reason: "Starting", Message: "tinylet starts", Count: 1, Last: ago(53 * time.Hour)},
		},
	}
	moods := []Severity{Good, Bad, Busy, Over}
	words := []string{"Running", "CrashLoopBackOff", "ContainerCreating", "Completed"}
	for i := range n {
		p := Pod{
			UID: fmt.Sprintf("6e1b0000-0000-4000-8000-%012d", i), Namespace: "default", Name: fmt.Sprintf("sensor-%d-kitchen-pi", i),
			Status: words[i%4], Severity: moods[i%4], Total: 2, Ready: 1, Restarts: i, LastRestart: ago(time.Duration(i) * time.Minute),
			Started: ago(time.Duration(i+1) * time.Hour), QOSClass: "Burstable", IP: "10.88.0.5",
			CPUNanoCores: new(uint64(i) * 7_000_000), MemoryBytes: uint64(i+1) << 20,
			Containers: []Container{
				{ContainerUsage: local.ContainerUsage{Name: "main", State: "Running", MemoryBytes: uint64(i+1) << 19, CPUNanoCores: new(uint64(i) * 7_000_000)}, Severity: Good},
				{ContainerUsage: local.ContainerUsage{Name: "proxy", State: "Waiting", Restarts: i}, Severity: Busy, Message: "back-off 10s"},
			},
		}
		s.Pods = append(s.Pods, p)
	}
	if n > 1 {
		s.Pods[1].Name = hostile
		s.Pods[1].Containers[0].Name = hostile
	}
	return s
}

// board provides the state of a Page in a test.
type board struct {
	mu    sync.Mutex
	state *State
	err   error
	reads int
	slots map[chan<- struct{}]struct{}
}

func (b *board) read(context.Context) (*State, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reads++
	return b.state, b.err
}

func (b *board) notify(slot chan<- struct{}) func() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.slots == nil {
		b.slots = make(map[chan<- struct{}]struct{})
	}
	b.slots[slot] = struct{}{}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.slots, slot)
	}
}

// become sets the state and notifies the page.
func (b *board) become(s *State) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.state = s
	for slot := range b.slots {
		select {
		case slot <- struct{}{}:
		default:
		}
	}
}

func (b *board) counts() (reads, slots int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reads, len(b.slots)
}

func newPage(t testing.TB, b *board, token func() (string, error)) *Page {
	t.Helper()
	return New(Config{State: b.read, Notify: b.notify, Token: token, Log: slog.New(slog.DiscardHandler)})
}

// answered is a response of the page.
type answered struct {
	StatusCode int
	Header     http.Header
	Body       *bytes.Buffer
}

// Cookies returns the cookies set by the response.
func (a *answered) Cookies(t *testing.T) (out []*http.Cookie) {
	t.Helper()
	for _, text := range a.Header.Values("Set-Cookie") {
		cookie, err := http.ParseSetCookie(text)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, cookie)
	}
	return out
}

// ask sends one request to the page.
func ask(t *testing.T, p *Page, method, host, path string, header ...string) *answered {
	t.Helper()
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
	r.Host = host
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	return &answered{w.Code, w.Header(), w.Body}
}

func TestRoutes(t *testing.T) {
	p := newPage(t, &board{state: sample(2)}, nil)
	for _, tt := range []struct {
		method, path string
		code         int
		kind         string
	}{
		{"GET", "/", 200, "text/html; charset=utf-8"},
		{"HEAD", "/", 200, "text/html; charset=utf-8"},
		{"GET", "/page/state", 200, "application/json"},
		{"HEAD", "/page/events", 200, "text/event-stream"},
		{"GET", "/page/other", 404, "text/plain; charset=utf-8"},
		{"GET", "/index.html", 404, "text/plain; charset=utf-8"},
		{"POST", "/", 405, "text/plain; charset=utf-8"},
		{"PUT", "/page/state", 405, "text/plain; charset=utf-8"},
		{"DELETE", "/page/events", 405, "text/plain; charset=utf-8"},
		{"OPTIONS", "/page/state", 405, "text/plain; charset=utf-8"},
	} {
		t.Run(tt.method+" "+tt.path, func(t *testing.T) {
			resp := ask(t, p, tt.method, "127.0.0.1:10248", tt.path)
			if resp.StatusCode != tt.code || resp.Header.Get("Content-Type") != tt.kind {
				t.Errorf("answered %d %s, want %d %s", resp.StatusCode, resp.Header.Get("Content-Type"), tt.code, tt.kind)
			}
			for header, want := range map[string]string{
				"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Referrer-Policy": "no-referrer",
				"Cross-Origin-Resource-Policy": "same-origin",
			} {
				if got := resp.Header.Get(header); got != want {
					t.Errorf("%s is %q, want %q", header, got, want)
				}
			}
			if policy := resp.Header.Get("Content-Security-Policy"); !strings.HasPrefix(policy, "default-src 'none'; ") || strings.Contains(policy, "unsafe") {
				t.Errorf("policy %q", policy)
			}
			if tt.code == 405 && resp.Header.Get("Allow") != "GET, HEAD" {
				t.Errorf("Allow is %q", resp.Header.Get("Allow"))
			}
		})
	}
}

func TestPageIsSmallAndWhole(t *testing.T) {
	text := string(index)
	if len(index) > 20<<10 {
		t.Errorf("the page has %d bytes", len(index))
	}
	for _, part := range []string{"<script>", "</script>", "<style>", "</style>"} {
		if n := strings.Count(text, part); n != 1 {
			t.Errorf("%d times %s: the policy allows one", n, part)
		}
	}
	// The policy would stop these, silently.
	for _, part := range []string{" onclick=", " onload=", " style=", "innerHTML", "http://", "https://", "<script ", "<style "} {
		if strings.Contains(text, part) {
			t.Errorf("the page has %s", part)
		}
	}
}

func TestStateIsJSON(t *testing.T) {
	b := &board{state: sample(3)}
	p := newPage(t, b, nil)
	var got State
	resp := ask(t, p, "GET", "localhost", "/page/state")
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
		t.Fatal(err)
	}
	if len(got.Pods) != 3 || got.Pods[1].Name != hostile || got.Node.Name != "kitchen-pi" {
		t.Errorf("state %+v", got)
	}
	b.err = errors.New("cgroups are gone")
	if resp := ask(t, p, "GET", "localhost", "/page/state"); resp.StatusCode != http.StatusInternalServerError {
		t.Errorf("answered %d", resp.StatusCode)
	}
	if p.last != nil {
		t.Error("a state is kept though nobody watches")
	}
}

func TestWhoMayLookWithoutToken(t *testing.T) {
	p := newPage(t, &board{state: sample(0)}, nil)
	for host, want := range map[string]int{
		"127.0.0.1:10248": 200, "127.0.0.1": 200, "127.8.8.8:80": 200, "localhost:10248": 200, "LocalHost": 200,
		"[::1]:10248": 200, "[::1]": 200, "[::ffff:127.0.0.1]:1": 200,
		"evil.example:10248": 421, "127.0.0.1.evil.example": 421, "localhost.evil.example": 421, "192.168.1.9:10248": 421,
		"": 421, "[::1%lo]:1": 421, "0.0.0.0:10248": 421, "0": 421, "2130706433": 421, "127.1": 421, "localhost:10248:1": 421,
	} {
		for _, path := range []string{"/", "/page/state"} {
			if resp := ask(t, p, "GET", host, path); resp.StatusCode != want {
				t.Errorf("%s at %q answered %d, want %d", path, host, resp.StatusCode, want)
			}
		}
	}
	for site, want := range map[string]int{"same-origin": 200, "none": 200, "cross-site": 403, "same-site": 403} {
		if resp := ask(t, p, "GET", "localhost", "/page/state", "Sec-Fetch-Site", site); resp.StatusCode != want {
			t.Errorf("a page of %s was answered %d, want %d", site, resp.StatusCode, want)
		}
		if resp := ask(t, p, "GET", "localhost", "/", "Sec-Fetch-Site", site); resp.StatusCode != 200 {
			t.Errorf("a link from %s was answered %d", site, resp.StatusCode)
		}
	}
}

func TestWhoMayLookWithToken(t *testing.T) {
	const token = "0123456789abcdef"
	p := newPage(t, &board{state: sample(0)}, func() (string, error) { return token, nil })
	for _, tt := range []struct {
		name, path string
		header     []string
		want       int
	}{
		{"nothing", "/", nil, 401},
		{"nothing, state", "/page/state", nil, 401},
		{"nothing, events", "/page/events", nil, 401},
		{"nothing, nowhere", "/page/other", nil, 401},
		{"bearer", "/page/state", []string{"Authorization", "Bearer " + token}, 200},
		{"another bearer", "/page/state", []string{"Authorization", "Bearer " + token + "x"}, 401},
		{"begin of it", "/page/state", []string{"Authorization", "Bearer " + token[:15]}, 401},
		{"empty bearer", "/page/state", []string{"Authorization", "Bearer "}, 401},
		{"basic", "/page/state", []string{"Authorization", "Basic " + token}, 401},
		{"cookie", "/page/state", []string{"Cookie", cookieName + "=" + cookieOf(token)}, 200},
		{"second cookie", "/", []string{"Cookie", cookieName + "=x; " + cookieName + "=" + cookieOf(token)}, 200},
		{"the token as a cookie", "/", []string{"Cookie", cookieName + "=" + token}, 401},
		{"another's cookie", "/", []string{"Cookie", cookieName + "=" + cookieOf(token+"x")}, 401},
		{"wrong in the address", "/?token=x", []string{"Cookie", cookieName + "=" + cookieOf(token)}, 401},
		{"not the page's address", "/page/state?token=" + token, nil, 401},
	} {
		t.Run(tt.name, func(t *testing.T) {
			resp := ask(t, p, "GET", "board.example:10248", tt.path, tt.header...)
			if resp.StatusCode != tt.want {
				t.Errorf("answered %d, want %d", resp.StatusCode, tt.want)
			}
			if tt.want == 401 && !strings.HasPrefix(resp.Header.Get("WWW-Authenticate"), "Bearer ") {
				t.Errorf("WWW-Authenticate is %q", resp.Header.Get("WWW-Authenticate"))
			}
			if len(resp.Cookies(t)) != 0 {
				t.Error("a cookie was given")
			}
		})
	}
	resp := ask(t, p, "GET", "board.example", "/?token="+token)
	cookies := resp.Cookies(t)
	if len(cookies) != 1 || !cookies[0].HttpOnly || cookies[0].SameSite != http.SameSiteStrictMode || cookies[0].Path != "/" || strings.Contains(cookies[0].Value, token) {
		t.Fatalf("cookies %v", cookies)
	}
	if resp := ask(t, p, "GET", "board.example", "/", "Cookie", cookies[0].Name+"="+cookies[0].Value); resp.StatusCode != 200 {
		t.Errorf("with that cookie: %d", resp.StatusCode)
	}
}

func TestTokenThatCannotBeRead(t *testing.T) {
	p := newPage(t, &board{state: sample(0)}, TokenFile(filepath.Join(t.TempDir(), "none")))
	for _, path := range []string{"/", "/page/state", "/?token="} {
		if resp := ask(t, p, "GET", "localhost", path, "Authorization", "Bearer "); resp.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("%s answered %d", path, resp.StatusCode)
		}
	}
}

func TestTokenFile(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct {
		name, text string
		mode       os.FileMode
		want, err  string
	}{
		{name: "good", text: "0123456789abcdef\n", mode: 0o600, want: "0123456789abcdef"},
		{name: "read-only", text: "0123456789abcdef", mode: 0o400, want: "0123456789abcdef"},
		{name: "longest", text: strings.Repeat("x", maxToken) + "\n", mode: 0o600, want: strings.Repeat("x", maxToken)},
		{name: "short", text: "0123456789abcde\n", mode: 0o600, err: "15 characters"},
		{name: "empty", mode: 0o600, err: "0 characters"},
		{name: "long", text: strings.Repeat("x", maxToken+1), mode: 0o600, err: "characters"},
		{name: "two lines", text: "0123456789abcdef\n0123456789abcdef", mode: 0o600, err: "one line"},
		{name: "no ASCII", text: "0123456789abcdefä", mode: 0o600, err: "ASCII"},
		{name: "for the group", text: "0123456789abcdef", mode: 0o640, err: "chmod 600"},
		{name: "for all", text: "0123456789abcdef", mode: 0o604, err: "chmod 600"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(dir, tt.name)
			if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, tt.mode); err != nil {
				t.Fatal(err)
			}
			got, err := TokenFile(path)()
			if tt.err == "" && (err != nil || got != tt.want) {
				t.Errorf("token %q, %v", got, err)
			}
			if tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err) || !strings.Contains(err.Error(), path) || got != "") {
				t.Errorf("token %q, %v", got, err)
			}
		})
	}
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, dir} {
		if _, err := TokenFile(path)(); err == nil || !strings.Contains(err.Error(), "regular file") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func FuzzIsLoopback(f *testing.F) {
	for _, host := range []string{"127.0.0.1:1", "localhost", "[::1]:1", "[", "]:", "[::ffff:127.0.0.1]", "evil", "127.0.0.1:1:1"} {
		f.Add(host)
	}
	f.Fuzz(func(t *testing.T, host string) {
		if !isLoopback(host) {
			return
		}
		lower := strings.ToLower(host)
		if !strings.HasPrefix(lower, "localhost") && !strings.Contains(host, "127.") && !strings.Contains(host, ":") {
			t.Errorf("%q counts as loopback", host)
		}
		if strings.Contains(lower, "evil") {
			t.Errorf("%q counts as loopback", host)
		}
	})
}

// BenchmarkState is one response with 30 pods: the cost of a watcher every 5 s,
// without the reading of stats.
func BenchmarkState(b *testing.B) {
	state := sample(30)
	p := newPage(b, &board{state: state}, nil)
	b.ReportAllocs()
	var size int
	for b.Loop() {
		text, err := p.read(b.Context(), time.Now())
		if err != nil {
			b.Fatal(err)
		}
		size = len(text)
	}
	b.ReportMetric(float64(size), "bytes/answer")
}
