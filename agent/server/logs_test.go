package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/podworker/podstatus"
)

func TestPodLogOptions(t *testing.T) {
	for query, want := range map[string]string{
		"":                                  `{}`,
		"follow=true&timestamps=1&previous": `{"follow":true,"previous":true,"timestamps":true}`,
		"follow=0&previous=False":           `{}`,
		"follow=yes":                        `{"follow":true}`, // as the API has it
		"tailLines=5&limitBytes=10&sinceSeconds=3": `{"sinceSeconds":3,"tailLines":5,"limitBytes":10}`,
		"tailLines=-1":                   `{"tailLines":-1}`, // for the validation
		"tail=7":                         `{"tailLines":7}`,
		"tail=all&tailLines=3":           `{}`,
		"sinceTime=2026-01-02T03:04:05Z": `{"sinceTime":"2026-01-02T03:04:05Z"}`,
		"stream=Stderr":                  `{"stream":"Stderr"}`,
		"container=x&unknown=1&insecureSkipTLSVerifyBackend=true": `{}`,
		"tailLines=x":                    "tailLines: ",
		"tailLines=99999999999999999999": "tailLines: ",
		"limitBytes=":                    "limitBytes: ",
		"sinceSeconds=1.5":               "sinceSeconds: ",
		"sinceTime=yesterday":            "sinceTime: ",
	} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		got, err := podLogOptions(values)
		if err != nil {
			if strings.HasPrefix(want, "{") || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%q: %v, want %s", query, err, want)
			}
			continue
		}
		if !strings.HasPrefix(want, "{") {
			t.Errorf("%q was accepted", query)
			continue
		}
		if diff := cmp.Diff(decoded[v1.PodLogOptions](t, want), *got, cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) })); diff != "" {
			t.Errorf("%q (-want +got):\n%s", query, diff)
		}
	}
}

func TestWhose(t *testing.T) {
	ended := func(id string) *v1.ContainerStateTerminated { return &v1.ContainerStateTerminated{ContainerID: id} }
	waiting := func(reason string) v1.ContainerState {
		return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}}
	}
	run := v1.ContainerState{Running: new(v1.ContainerStateRunning)}
	for name, tt := range map[string]struct {
		state    v1.ContainerState
		last     *v1.ContainerStateTerminated
		previous bool
		started  string
		want     string
	}{
		"runs":                          {run, nil, false, "", "id:scheme://now"},
		"runs again":                    {run, ended("last"), false, "", "id:scheme://now"},
		"the one before":                {run, ended("last"), true, "", "id:last"},
		"none before":                   {run, nil, true, "", `previous terminated container "app" in pod "web" not found`},
		"one before that never started": {run, ended(""), true, "", `previous terminated container "app" in pod "web" not found`},
		"ended":                         {v1.ContainerState{Terminated: ended("now")}, nil, false, "", "id:now"},
		"ended, the one before":         {v1.ContainerState{Terminated: ended("now")}, ended("last"), true, "", "id:last"},
		"never started again":           {v1.ContainerState{Terminated: ended("")}, ended("last"), false, "", "id:last"},
		"never started":                 {v1.ContainerState{Terminated: ended("")}, nil, false, "", `container "app" in pod "web" is terminated`},
		"waits to start again":          {waiting("CrashLoopBackOff"), ended("last"), false, "", "id:last"},
		"waits, and never ran":          {waiting("CrashLoopBackOff"), ended(""), false, "", `container "app" in pod "web" is terminated`},
		"waits":                         {waiting("ContainerCreating"), nil, false, "", `container "app" in pod "web" is waiting to start: ContainerCreating`},
		"no image":                      {waiting("ErrImagePull"), nil, false, "", `container "app" in pod "web" is waiting to start: image can't be pulled`},
		"no image for long":             {waiting("ImagePullBackOff"), nil, false, "", `container "app" in pod "web" is waiting to start: trying and failing to pull image`},
		"nothing is known":              {v1.ContainerState{}, nil, false, "", `container "app" in pod "web" is waiting to start - no logs yet`},
		"started since":                 {waiting("ContainerCreating"), nil, false, "new", "id:new"},
		"started again since":           {v1.ContainerState{Terminated: ended("now")}, ended("last"), false, "new", "id:new"},
		"the one before that":           {v1.ContainerState{Terminated: ended("now")}, ended("last"), true, "new", "id:now"},
		"before that, the end unseen":   {run, ended("last"), true, "new", "id:scheme://now"},
		"before that, while it waited":  {waiting("CrashLoopBackOff"), ended("last"), true, "new", "id:last"},
		"runs, and the status knows":    {run, nil, false, "now", "id:scheme://now"},
		"runs as the status has it":     {run, ended("last"), true, "now", "id:last"},
		"nothing before it":             {waiting("ContainerCreating"), nil, true, "new", `previous terminated container "app" in pod "web" not found`},
	} {
		status := &v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{
			{Name: "app", ContainerID: "scheme://now", State: tt.state, LastTerminationState: v1.ContainerState{Terminated: tt.last}},
		}}
		got, err := logContainerID("web", status, "app", tt.started, tt.previous)
		text := "id:" + got
		if err != nil {
			text = err.Error()
		}
		if text != tt.want {
			t.Errorf("%s: %q, want %q", name, text, tt.want)
		}
	}
	if _, err := logContainerID("web", new(v1.PodStatus), "app", "", false); err == nil || err.Error() != `container "app" in pod "web" is not available` {
		t.Errorf("without a status: %v", err)
	}
	if id, err := logContainerID("web", new(v1.PodStatus), "app", "new", false); id != "new" || err != nil {
		t.Errorf("started before there is a status: %q, %v", id, err)
	}
}

const (
	second1 = "2026-01-02T03:04:05.000000001Z"
	second2 = "2026-01-02T03:04:06.000000002Z"
)

// logged writes a container's log file.
func (b *board) logged(id, content string) string {
	b.t.Helper()
	path := filepath.Join(b.t.TempDir(), "0.log")
	b.append(path, content)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.logs[id] = LogFile{Path: path}
	return path
}

func (b *board) append(path, content string) {
	b.t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		b.t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(content); err != nil {
		b.t.Fatal(err)
	}
}

func TestContainerLogs(t *testing.T) {
	b := newBoard(t)
	waits := running("default", "waits", "app")
	waits.Status.ContainerStatuses[0].State = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ContainerCreating"}}
	init := running("default", "init", "app")
	init.Spec.InitContainers = []v1.Container{{Name: "first"}}
	init.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}}}
	init.Status.InitContainerStatuses = []v1.ContainerStatus{{
		Name: "first", ContainerID: "cri-o://i", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ContainerID: "cri-o://i"}},
	}}
	b.pods[0].Status.ContainerStatuses[0].LastTerminationState.Terminated = &v1.ContainerStateTerminated{ContainerID: "containerd://before"}
	b.pods = append(b.pods, waits, init)
	b.logged("web-app", second1+" stdout F one\n"+second1+" stderr F <b>two</b>\n"+second2+" stdout F three\n")
	b.logged("before", second1+" stdout F earlier\n")
	b.logged("i", second1+" stdout F init\n")
	b.logs["init-app"] = LogFile{Path: filepath.Join(t.TempDir(), "0.log")}
	late := running("default", "late", "app", "pulls")
	late.Status.ContainerStatuses = nil // while the second one's image is pulled
	b.pods = append(b.pods, late)
	b.logged("late-app", second1+" stdout F started\n")
	b.started = map[string]string{"uid-of-late/app": "late-app"}
	b.start()
	admin := b.admin()
	for path, want := range map[string]answer{
		"default/web/app":                                {code: 200, text: "one\n<b>two</b>\nthree\n"},
		"default/web/app/":                               {code: 200, text: "one\n<b>two</b>\nthree\n"},
		"default/web/app?tailLines=1":                    {code: 200, text: "three\n"},
		"default/web/app?tail=1":                         {code: 200, text: "three\n"},
		"default/web/app?tailLines=0":                    {code: 200},
		"default/web/app?timestamps=true&tailLines=1":    {code: 200, text: "2026-01-02T03:04:06.000000002Z three\n"},
		"default/web/app?sinceTime=2026-01-02T03:04:06Z": {code: 200, text: "three\n"},
		"default/web/app?sinceSeconds=10":                {code: 200},
		"default/web/app?limitBytes=5":                   {code: 200, text: "one\n<"},
		"default/web/app?stream=Stderr":                  {code: 200, text: "<b>two</b>\n"},
		"default/web/app?stream=Stdout":                  {code: 200, text: "one\nthree\n"},
		"default/web/app?stream=All":                     {code: 200, text: "one\n<b>two</b>\nthree\n"},
		"default/web/app?previous=true":                  {code: 200, text: "earlier\n"},
		"default/init/first":                             {code: 200, text: "init\n"},
		"default/web/side?previous=true":                 {code: 400, text: `previous terminated container "side" in pod "web" not found`},
		"default/web/side":                               {code: 400, text: "unable to retrieve container logs for containerd://web-side"},
		"default/late/app":                               {code: 200, text: "started\n"},
		"default/late/pulls":                             {code: 400, text: `container "pulls" in pod "late" is not available`},
		"default/late/app?previous=true":                 {code: 400, text: `container "app" in pod "late" is not available`},
		"default/init/debug":                             {code: 400, text: `container "debug" in pod "init" is not available`},
		"default/waits/app":                              {code: 400, text: `container "app" in pod "waits" is waiting to start: ContainerCreating`},
		"default/web/none":                               {code: 404, text: `container "none" not found in pod "web"`},
		"default/none/app":                               {code: 404, text: `pod "none" does not exist`},
		"other/web/app":                                  {code: 404, text: `pod "web" does not exist`},
		"default/%00/app":                                {code: 404, text: `pod "\x00" does not exist`},
		"default/web/app?tailLines=x":                    {code: 400, text: `{"message": "Unable to decode query. tailLines: `},
		"default/web/app?tailLines=-1":                   {code: 422, text: `{"message": "Invalid request. invalid number of last lines -1: must not be negative"}`},
		"default/web/app?limitBytes=0":                   {code: 422, text: `{"message": "Invalid request. invalid byte limit 0: must be at least 1"}`},
		"default/web/app?sinceSeconds=0":                 {code: 422, text: `{"message": "Invalid request. invalid sinceSeconds 0: must be at least 1"}`},
		"default/web/app?stream=x":                       {code: 422, text: `{"message": "Invalid request. invalid stream \"x\": must be `},
		"default/none/app?stream=x":                      {code: 422, text: `{"message": "Invalid request. `},
		"default/web/app?sinceSeconds=1&sinceTime=2026-01-02T03:04:06Z": {code: 422, text: `{"message": "Invalid request. `},
		"default/init/app": {code: 400, text: `read log "`},
	} {
		got := b.ask(admin, "GET", "/containerLogs/"+path)
		if got.code != want.code || got.text != want.text && (want.code < 400 || !strings.HasPrefix(got.text, want.text)) {
			t.Errorf("%s: %d %q, want %d %q", path, got.code, got.text, want.code, want.text)
		}
		if kind := got.header.Get("Content-Type"); !strings.HasPrefix(kind, "text/plain") || got.header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: content type %q", path, kind)
		}
	}
	for _, q := range b.asks {
		if q.Pod == nil || q.Follow || strings.Contains(q.ID, ":") {
			t.Errorf("asked for %+v", q)
		}
	}
}

// TestLogsOfARestoredPod: the request waits until the pod is observed, unless that takes too
// long.
func TestLogsOfARestoredPod(t *testing.T) {
	for name, tt := range map[string]struct {
		observed time.Duration
		code     int
		after    time.Duration
	}{
		"observed soon":     {time.Second, 200, time.Second},
		"runtime is silent": {time.Hour, 400, podstatus.ObserveTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBoard(t)
				b.logged("web-app", second1+" stdout F one\n")
				statuses, web := podstatus.NewStore(), b.pods[0]
				statuses.SetPod(web, v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{
					{Name: "app", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ContainerCreating"}}},
				}})
				time.AfterFunc(tt.observed, func() { statuses.Set(web, web.Status, pod.Sandbox{}) })
				b.config.Pods, b.config.AwaitObserved = statuses.All, statuses.AwaitObserved
				begun, w := time.Now(), httptest.NewRecorder()
				r := httptest.NewRequestWithContext(t.Context(), "GET", "/containerLogs/default/web/app", nil)
				b.build().containerLogs(newDeadlineWriter(w), r, []string{"default", "web", "app"})
				if took := time.Since(begun); w.Code != tt.code || took != tt.after {
					t.Errorf("%d %q after %v, want %d after %v", w.Code, w.Body, took, tt.code, tt.after)
				}
			})
		})
	}
}

// TestLogThatIsCutOff: the client of a log that is not followed must not take it for complete
// if its request is cancelled, as at shutdown.
func TestLogThatIsCutOff(t *testing.T) {
	b := newBoard(t)
	path := filepath.Join(t.TempDir(), "0.log")
	b.append(path, strings.Repeat(second1+" stdout F line\n", 10000))
	ctx, cancel := context.WithCancel(t.Context())
	b.config.ContainerLog = func(context.Context, LogQuery) (LogFile, error) {
		cancel()
		return LogFile{Path: path}, nil
	}
	defer func() {
		if p, _ := recover().(error); !errors.Is(p, http.ErrAbortHandler) {
			t.Errorf("panic %v, want %v", p, http.ErrAbortHandler)
		}
	}()
	r := httptest.NewRequestWithContext(ctx, "GET", "/containerLogs/default/web/app", nil)
	b.build().containerLogs(newDeadlineWriter(httptest.NewRecorder()), r, []string{"default", "web", "app"})
}

// followed is a request that follows a log.
type followed struct {
	t        *testing.T
	response *http.Response
	lines    *bufio.Scanner
	cancel   context.CancelFunc
}

func (b *board) follow(t *testing.T, c *client, query string) *followed {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	response, err := b.send(ctx, c, "GET", "/containerLogs/default/web/app?follow=true"+query, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); response.Body.Close() })
	if response.StatusCode != 200 || response.ContentLength != -1 {
		t.Fatalf("%s, length %d", response.Status, response.ContentLength)
	}
	return &followed{t, response, bufio.NewScanner(response.Body), cancel}
}

func (f *followed) want(lines ...string) {
	f.t.Helper()
	for _, want := range lines {
		if !f.lines.Scan() {
			f.t.Fatalf("the log ended before %q: %v", want, f.lines.Err())
		}
		if got := f.lines.Text(); got != want {
			f.t.Fatalf("%q, want %q", got, want)
		}
	}
}

// end waits for the end of the response.
func (f *followed) end() error {
	f.t.Helper()
	if f.lines.Scan() {
		f.t.Errorf("more: %q", f.lines.Text())
	}
	return f.lines.Err()
}

// settled waits until the number of goroutines is down to before.
func settled(t *testing.T, before int) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for runtime.NumGoroutine() > before {
		if time.Now().After(deadline) {
			stacks := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, and there were %d:\n%s", runtime.NumGoroutine(), before, stacks[:runtime.Stack(stacks, true)])
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// TestFollow follows a log across a rotation, and checks for leaks after the client has
// disconnected.
func TestFollow(t *testing.T) {
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(protocol, func(t *testing.T) {
			b := newBoard(t)
			path := b.logged("web-app", second1+" stdout F zero\n"+second1+" stdout F one\n")
			before := runtime.NumGoroutine() + own
			b.start()
			c := b.over(protocol, b.adminCertificate())
			f := b.follow(t, c, "&tailLines=1")
			if f.response.Proto != protocol {
				t.Fatal(f.response.Proto)
			}
			f.want("one")
			b.append(path, second1+" stdout F two\n")
			f.want("two")
			if err := os.Rename(path, path+".20260102-030405"); err != nil {
				t.Fatal(err)
			}
			b.append(path, second2+" stdout F three\n")
			f.want("three")
			if len(b.server.slots.followed) != 1 {
				t.Errorf("%d are followed", len(b.server.slots.followed))
			}
			f.cancel() // the client is gone
			if err := f.end(); !errors.Is(err, context.Canceled) {
				t.Errorf("%v", err)
			}
			c.http.CloseIdleConnections()
			// Places are given back by whoever took them: the goroutines before
			// may have been those of an earlier test.
			for len(b.server.slots.followed)+len(b.server.slots.requests) > 0 && t.Context().Err() == nil {
				time.Sleep(time.Millisecond)
			}
			settled(t, before)
		})
	}
}

// TestFollowTellsAtOnce: the client of an empty log receives the headers at once, and
// the response ends with the container or the server.
func TestFollowTellsAtOnce(t *testing.T) {
	b := newBoard(t)
	path := b.logged("web-app", "")
	ended := make(chan struct{})
	b.logs["web-app"] = LogFile{Path: path, Ended: ended}
	stop := b.start()
	admin := b.admin()
	f := b.follow(t, admin, "")
	b.append(path, second1+" stdout F last\n")
	close(ended)
	f.want("last")
	if err := f.end(); err != nil {
		t.Error(err)
	}
	if q := b.asks[0]; !q.Follow || q.ID != "web-app" || q.Container != "app" {
		t.Errorf("asked for %+v", q)
	}
	b.mu.Lock()
	b.logs["web-app"] = LogFile{Path: path}
	b.mu.Unlock()
	f = b.follow(t, admin, "")
	f.want("last")
	done := make(chan struct{})
	go func() { defer close(done); stop() }()
	if err := f.end(); err != nil {
		t.Errorf("the server's end: %v", err)
	}
	<-done
}

func TestTooManyFollow(t *testing.T) {
	b := newBoard(t)
	b.logged("web-app", "")
	b.start()
	for b.server.slots.followed.try() {
	}
	admin := b.admin()
	if got := b.ask(admin, "GET", "/containerLogs/default/web/app?follow=true"); got.code != http.StatusTooManyRequests {
		t.Errorf("%d", got.code)
	}
	if got := b.ask(admin, "GET", "/containerLogs/default/web/app"); got.code != http.StatusOK {
		t.Errorf("%d", got.code)
	}
}

// TestQuietLogStays: a followed log without new lines does not reach the write
// deadline, with HTTP/1.1 and HTTP/2.
func TestQuietLogStays(t *testing.T) {
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(protocol, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBoard(t)
				more := make(chan string)
				// Inotify has no virtual time: a stream stands for the log.
				b.config.Streaming = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					out := flushWriter{w.(*deadlineWriter)}
					if out.FlushError() != nil {
						return
					}
					for text := range more {
						if _, err := fmt.Fprintln(out, text); err != nil {
							return
						}
					}
				})
				p := b.pipes()
				defer p.stop()
				response, err := b.send(t.Context(), p.client(protocol, b.adminCertificate()), "GET", "/exec/default/web/app", nil, nil)
				if err != nil {
					t.Fatal(err)
				}
				more <- "one"
				defer response.Body.Close()
				f := &followed{t: t, response: response, lines: bufio.NewScanner(response.Body)}
				f.want("one")
				time.Sleep(10 * time.Hour)
				more <- "two"
				f.want("two")
				time.Sleep(10 * time.Hour)
				close(more)
				if err := f.end(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
