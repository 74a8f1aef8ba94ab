package statuspage

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tinylet/tinylet/agent/server/local"
)

// chromium is a headless browser, driven by the DevTools protocol over two
// pipes.
type chromium struct {
	t       *testing.T
	to      *os.File
	mu      sync.Mutex
	last    int
	waiting map[int]chan json.RawMessage
	heard   []string // violations, errors and requests elsewhere
	session string
}

// startChromium starts a browser, or skips the test if there is none.
func startChromium(t *testing.T) *chromium {
	t.Helper()
	if testing.Short() {
		t.Skip("skipped by -short: it starts a browser")
	}
	var program string
	for _, name := range []string{"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			program = path
			break
		}
	}
	if program == "" {
		t.Skip("SKIPPED, so that nobody has seen the page run: there is no Chromium here; `apt-get install chromium-headless-shell` brings one")
	}
	theirs, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage", "--no-first-run",
		"--disable-extensions", "--disable-background-networking", "--remote-debugging-pipe", "--user-data-dir="+t.TempDir(), "about:blank")
	cmd.ExtraFiles = []*os.File{theirs, theirOut} // 3 and 4
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	theirOut.Close()
	c := &chromium{t: t, to: to, waiting: make(map[int]chan json.RawMessage)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.listen(from)
	}()
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was killed
		to.Close()
		<-done
		from.Close()
	})
	return c
}

func (c *chromium) listen(from *os.File) {
	for in := bufio.NewReader(from); ; {
		text, err := in.ReadBytes(0)
		if err != nil {
			return
		}
		var m struct {
			ID            int
			Method        string
			Result, Error json.RawMessage
			Params        json.RawMessage
		}
		if err := json.Unmarshal(text[:len(text)-1], &m); err != nil {
			continue
		}
		c.mu.Lock()
		switch {
		case m.ID != 0:
			if m.Error != nil {
				m.Result = json.RawMessage(fmt.Sprintf(`{"failed":%s}`, m.Error))
			}
			c.waiting[m.ID] <- m.Result
			delete(c.waiting, m.ID)
		case m.Method == "Log.entryAdded", m.Method == "Runtime.exceptionThrown", m.Method == "Runtime.consoleAPICalled", m.Method == "Audits.issueAdded":
			c.heard = append(c.heard, m.Method+" "+string(m.Params))
		}
		c.mu.Unlock()
	}
}

// call calls a method of the browser and decodes the result into into, if that
// is not nil.
func (c *chromium) call(method string, params map[string]any, into any) {
	c.t.Helper()
	if failed := c.try(method, params, into); failed != "" {
		c.t.Fatalf("%s: %s", method, failed)
	}
}

// try is call that returns the browser's error.
func (c *chromium) try(method string, params map[string]any, into any) (failed string) {
	c.t.Helper()
	answer := make(chan json.RawMessage, 1)
	c.mu.Lock()
	c.last++
	id := c.last
	c.waiting[id] = answer
	c.mu.Unlock()
	text, err := json.Marshal(map[string]any{"id": id, "method": method, "params": params, "sessionId": c.session})
	if c.session == "" {
		text, err = json.Marshal(map[string]any{"id": id, "method": method, "params": params})
	}
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.to.Write(append(text, 0)); err != nil {
		c.t.Fatal(err)
	}
	select {
	case result := <-answer:
		if strings.HasPrefix(string(result), `{"failed":`) {
			return string(result)
		}
		if into != nil {
			if err := json.Unmarshal(result, into); err != nil {
				c.t.Fatal(err)
			}
		}
	case <-time.After(time.Minute):
		c.t.Fatalf("%s: no answer", method)
	}
	return ""
}

// open opens a page in a new window.
func (c *chromium) open(url string) {
	c.t.Helper()
	var target struct{ TargetID string }
	var session struct{ SessionID string }
	c.session = ""
	c.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	c.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &session)
	c.session = session.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Audits"} {
		c.call(domain+".enable", nil, nil)
	}
	c.call("Page.navigate", map[string]any{"url": url}, nil)
}

// eval returns the value of an expression as text.
func (c *chromium) eval(expression string) string {
	c.t.Helper()
	value, failed := c.evaluate(expression)
	if failed != "" {
		c.t.Fatalf("%s: %s", expression, failed)
	}
	return value
}

// evaluate is eval that returns the browser's error.
func (c *chromium) evaluate(expression string) (value, failed string) {
	c.t.Helper()
	var out struct {
		Result           struct{ Value any }
		ExceptionDetails json.RawMessage
	}
	failed = c.try("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &out)
	if out.ExceptionDetails != nil {
		c.t.Fatalf("%s: %s", expression, out.ExceptionDetails)
	}
	return fmt.Sprint(out.Result.Value), failed
}

// leaves are the browser's errors of a call during navigation, before the next
// page is loaded.
var leaves = []string{"Inspected target navigated or closed", "Execution context was destroyed", "Cannot find context"}

// until waits for an expression to be true.
func (c *chromium) until(expression string) {
	c.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		value, failed := c.evaluate("!!(" + expression + ")")
		if value == "true" {
			return
		}
		if failed != "" && !slices.ContainsFunc(leaves, func(what string) bool { return strings.Contains(failed, what) }) {
			c.t.Fatalf("%s: %s", expression, failed)
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("never true: %s; the page has\n%s", expression, c.eval("document.body.innerText"))
		}
	}
}

// look sets the size and the color scheme of the window.
func (c *chromium) look(width, height int, scheme string) {
	c.t.Helper()
	c.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}, nil)
	c.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// picture saves a screenshot of the whole page in the directory that
// PAGE_PICTURES names, if set.
func (c *chromium) picture(name string) {
	c.t.Helper()
	folder := os.Getenv("PAGE_PICTURES")
	if folder == "" {
		return
	}
	var shot struct{ Data string }
	c.call("Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": true}, &shot)
	data, err := base64.StdEncoding.DecodeString(shot.Data)
	if err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, name+".png"), data, 0o600); err != nil {
		c.t.Fatal(err)
	}
}

// serving is a page on a port of the loopback address.
func serving(t *testing.T, p http.Handler) string {
	t.Helper()
	srv := httptest.NewServer(p)
	// A page that is watched has no end of its own.
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	return srv.URL
}

func TestPageInABrowser(t *testing.T) {
	c := startChromium(t)
	source := &board{state: sample(6)}
	c.open(serving(t, newPage(t, source, nil)) + "/")
	c.until(`document.querySelectorAll("#pods tr").length === 6`)

	run := func(name string, f func(t *testing.T)) {
		t.Run(name, func(t *testing.T) {
			defer func(outer *testing.T) { c.t = outer }(c.t)
			c.t = t
			f(t)
		})
	}
	run("tells what there is", func(t *testing.T) {
		text := c.eval("document.body.innerText")
		for _, want := range []string{
			"kitchen-pi", "needs attention", "live", "the runtime has not answered for 40s", "container runtime is down", "no route to host",
			"put a new token", "301 MiB of 460 MiB", "431m of 4 cores", "CrashLoopBackOff", "sensor-0-kitchen-pi", "BackOff ×7", "tinylet starts",
			"Burstable", "4.0 MiB sent", "2027-05-06 07:08 UTC", hostile[:20],
		} {
			if !strings.Contains(text, want) {
				t.Errorf("the page does not say %q", want)
			}
		}
		if title := c.eval("document.title"); title != "(!) kitchen-pi – tinylet" {
			t.Errorf("title %q", title)
		}
		if t.Failed() {
			t.Log(text)
		}
	})
	run("strangers' words stay words", func(t *testing.T) {
		if got := c.eval("String(window.pwned)"); got != "undefined" {
			t.Error("a pod's name ran")
		}
		if got := c.eval(`document.querySelectorAll("img").length`); got != "0" {
			t.Errorf("%s images", got)
		}
		if got := c.eval(`document.querySelectorAll("#pods .name")[1].textContent`); got != hostile {
			t.Errorf("a name became %q", got)
		}
	})
	run("fits", func(t *testing.T) {
		c.eval(`document.querySelectorAll("details")[0].open = true`)
		for _, size := range []struct {
			width  int
			scheme string
		}{{1200, "light"}, {1200, "dark"}, {768, "light"}, {360, "light"}, {360, "dark"}} {
			c.look(size.width, 900, size.scheme)
			if got := c.eval("document.documentElement.scrollWidth"); got != fmt.Sprint(size.width) {
				t.Errorf("at %d px the page is %s px wide", size.width, got)
			}
			ground := c.eval("getComputedStyle(document.body).backgroundColor")
			if dark := ground == "rgb(16, 20, 25)"; dark != (size.scheme == "dark") {
				t.Errorf("the ground is %s where %s is wanted", ground, size.scheme)
			}
			c.picture(fmt.Sprintf("%d-%s", size.width, size.scheme))
		}
	})
	run("follows", func(t *testing.T) {
		next := sample(5)
		next.Pods = next.Pods[1:]
		next.Pods[0], next.Pods[1] = next.Pods[1], next.Pods[0]
		next.Pods[0].Status, next.Pods[0].Severity = "Terminating", Busy
		next.Checks[1].Problem, next.Conditions[0].Good, next.Server = "", true, nil
		c.eval(`document.querySelectorAll("#pods details")[3].open = true; window.mark = document.querySelectorAll("#pods tr")[4]; 0`)
		source.become(next)
		c.until(`document.querySelectorAll("#pods tr").length === 4`)
		c.until(`document.querySelector("#pods td:nth-child(2) .pill").textContent === "Terminating"`)
		if got := c.eval(`document.querySelector("#health").textContent + document.querySelector("#cluster").hidden`); got != "healthytrue" {
			t.Errorf("health and API server: %s", got)
		}
		if got := c.eval(`document.querySelectorAll("#pods tr")[3] === window.mark`); got != "true" {
			t.Error("a row that did not change was made anew")
		}
		if got := c.eval(`document.querySelectorAll("#pods details")[2].open`); got != "true" {
			t.Error("what somebody had opened closed")
		}
		empty := sample(0)
		empty.Events, empty.Classes, empty.Conditions = nil, nil, nil
		empty.Node.CPUNanoCores, empty.Node.Pressure, empty.Node.MemoryBytes = nil, nil, 0
		source.become(empty)
		c.until(`document.body.innerText.includes("No pods on this node.") && document.body.innerText.includes("No events yet.")`)
		c.look(1200, 900, "light")
		c.picture("empty")
	})
	run("tells of trouble", func(t *testing.T) {
		source.mu.Lock()
		source.err = fmt.Errorf("cgroups are gone")
		source.mu.Unlock()
		c.until(`document.querySelector("#trouble").innerText.includes("cgroups are gone")`)
		c.picture("trouble")
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, said := range c.heard {
		t.Errorf("the browser complains: %s", said)
	}
}

func TestPageWithTokenInABrowser(t *testing.T) {
	c := startChromium(t)
	const token = "0123456789abcdef"
	p := newPage(t, &board{state: sample(1)}, func() (string, error) { return token, nil })
	url := serving(t, p)
	c.open(url + "/")
	c.until(`document.body && document.body.innerText.includes("requires its token")`)
	c.open(url + "/?token=" + token)
	c.until(`document.querySelectorAll("#pods tr").length === 1`)
	if got := c.eval("location.href + document.cookie"); got != url+"/" {
		t.Errorf("the address and the cookies that scripts see: %s", got)
	}
}

func TestPageWithoutItsAgentInABrowser(t *testing.T) {
	c := startChromium(t)
	p := newPage(t, &board{state: sample(1)}, nil)
	var mu sync.Mutex
	gone := false
	url := serving(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		down := gone
		mu.Unlock()
		if down {
			http.Error(w, "too many watch", http.StatusServiceUnavailable)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
		defer cancel()
		p.ServeHTTP(w, r.WithContext(ctx))
	}))
	c.open(url + "/")
	c.until(`document.querySelector("#live") && document.querySelector("#live").textContent === "live"`)
	mu.Lock()
	gone = true
	mu.Unlock()
	c.until(`document.querySelector("#live").textContent === "no connection" && document.querySelector("#trouble").innerText.includes("too many watch")`)
	mu.Lock()
	gone = false
	mu.Unlock()
	c.until(`document.querySelector("#live").textContent === "live" && !document.querySelector("#trouble").classList.contains("on")`)
}

// TestScreenshot shows a page on which one container is in crash loop backoff. `make docs`
// saves it as docs/images/status-page.png.
func TestScreenshot(t *testing.T) {
	c := startChromium(t)
	state := sample(4)
	state.Checks[1].Problem, state.Conditions[0] = "", Condition{Condition: local.Condition{Type: "Ready", Status: "True", Reason: "KubeletReady", Since: state.Conditions[1].Since}, Good: true}
	state.Server.Failure, state.Server.Problem = "", ""
	state.Events[0].Message = "back-off 80s restarting failed container=main"
	names := []string{"thermometer", "camera", "mqtt-bridge", "update"}
	for i := range state.Pods {
		p := &state.Pods[i]
		p.Name, p.IP = names[i]+"-kitchen-pi", fmt.Sprintf("10.88.0.%d", i+5)
		p.Containers[0].Name = names[i]
	}
	state.Pods[0].Ready = 2
	state.Pods[0].Containers[1] = Container{ContainerUsage: local.ContainerUsage{Name: "proxy", State: "Running", MemoryBytes: 1 << 19}, Severity: Good}
	state.Events[0].Pod = "default/camera-kitchen-pi"
	c.open(serving(t, newPage(t, &board{state: state}, nil)) + "/")
	c.look(1200, 900, "light")
	c.until(`document.querySelectorAll("#pods tr").length === 4`)
	if health := c.eval(`document.querySelector("#health").textContent`); health != "healthy" {
		t.Errorf("health %q", health)
	}
	c.picture("status-page")
}
