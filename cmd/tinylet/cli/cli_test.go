package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/agent/server/local"
)

var update = flag.Bool("update", false, "update the golden files")

var now = time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

// node is a running agent with pods, events and log files.
type node struct {
	system *system
	socket string
}

func newNode(t *testing.T, pods []local.Pod, events []event.Event, change ...func(*local.Config)) *node {
	t.Helper()
	n := &node{
		socket: filepath.Join(t.TempDir(), "tinylet.sock"),
		system: &system{
			now: func() time.Time { return now }, uptime: func() time.Duration { return 30 * 24 * time.Hour },
			logRoot: t.TempDir(), root: t.TempDir(), uid: func() int { return 0 },
		},
	}
	if pods == nil {
		return n
	}
	cfg := local.Config{
		SocketPath: n.socket,
		Pods:       func(context.Context) []local.Pod { return pods },
		Events:     func() []event.Event { return events },
		Problem:    func() string { return "" },
		Todo:       func() []string { return nil },
		Conditions: func() []local.Condition { return nil },
		Log:        slog.New(slog.DiscardHandler),

		RuntimeCalls: func() uint64 { return 0 },
	}
	for _, f := range change {
		f(&cfg)
	}
	server := local.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if _, err := local.NewClient(n.socket).Status(ctx); err == nil {
			return n
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// run runs a command line and returns both outputs and the error.
func (n *node) run(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	err = n.runTo(t, &out, &errs, args...)
	return out.String(), errs.String(), err
}

func (n *node) runTo(t *testing.T, out, errs io.Writer, args ...string) error {
	t.Helper()
	root := &cobra.Command{Use: "tinylet", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(n.system.commands()...)
	if args[0] != "check" && args[0] != "net" && args[len(args)-1] != "--help" {
		args = append(args, "--socket", n.socket)
	}
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errs)
	return root.ExecuteContext(t.Context())
}

func (n *node) log(t *testing.T, path, content string) string {
	t.Helper()
	path = filepath.Join(n.system.logRoot, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

// samplePods returns pods in different states.
func samplePods() []local.Pod {
	always := v1.ContainerRestartPolicyAlways
	start := ago(26 * time.Hour)
	web := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "web-board", UID: "6e1b",
			Labels:      map[string]string{"app": "web", "a": "b"},
			Annotations: map[string]string{pod.AnnotationSource: pod.SourceFile},
		},
		Spec: v1.PodSpec{
			NodeName: "board", RestartPolicy: v1.RestartPolicyAlways,
			InitContainers: []v1.Container{
				{Name: "setup", Image: "busybox:1.36"},
				{Name: "proxy", Image: "proxy:2", RestartPolicy: &always},
			},
			Containers: []v1.Container{{
				Name: "nginx", Image: "nginx:1", Command: []string{"nginx"}, Args: []string{"-g", "daemon off;"},
				Ports:        []v1.ContainerPort{{ContainerPort: 80, HostPort: 8080, Protocol: v1.ProtocolTCP}},
				VolumeMounts: []v1.VolumeMount{{Name: "data", MountPath: "/data"}, {Name: "etc", MountPath: "/etc/x", ReadOnly: true}},
				Resources: v1.ResourceRequirements{
					Limits:   v1.ResourceList{v1.ResourceMemory: resource.MustParse("64Mi"), v1.ResourceCPU: resource.MustParse("500m")},
					Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse("32Mi")},
				},
			}},
			Volumes: []v1.Volume{
				{Name: "data", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
				{Name: "etc", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/etc"}}},
			},
		},
		Status: v1.PodStatus{
			Phase: v1.PodRunning, StartTime: &start, PodIP: "10.88.0.5", PodIPs: []v1.PodIP{{IP: "10.88.0.5"}}, QOSClass: v1.PodQOSBurstable,
			Conditions: []v1.PodCondition{{Type: v1.PodInitialized, Status: v1.ConditionTrue}, {Type: v1.PodReady, Status: v1.ConditionTrue}},
			InitContainerStatuses: []v1.ContainerStatus{
				{Name: "setup", Ready: true, ContainerID: "containerd://aaa", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: "Completed", StartedAt: start, FinishedAt: ago(25 * time.Hour)}}},
				{Name: "proxy", Ready: true, Started: new(true), ContainerID: "containerd://bbb", State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: start}}},
			},
			ContainerStatuses: []v1.ContainerStatus{{
				Name: "nginx", Ready: true, RestartCount: 2, ContainerID: "containerd://ccc", Image: "docker.io/library/nginx:1",
				State:                v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: ago(10 * time.Minute)}},
				LastTerminationState: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: "OOMKilled", ExitCode: 137, FinishedAt: ago(11 * time.Minute)}},
			}},
		},
	}
	crashStart := ago(5 * time.Minute)
	crash := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "crash-board", UID: "7f2c"},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: "busybox:1.36"}}},
		Status: v1.PodStatus{
			Phase: v1.PodRunning, StartTime: &crashStart,
			ContainerStatuses: []v1.ContainerStatus{{
				Name: "main", RestartCount: 4, ContainerID: "containerd://ddd",
				State:                v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 80s\x1b[2J restarting\nmain"}},
				LastTerminationState: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: "Error", ExitCode: 2, FinishedAt: ago(20 * time.Second)}},
			}},
		},
	}
	job := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "batch", Name: "job-board", UID: "8a3d"},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: "busybox:1.36"}}},
		Status: v1.PodStatus{
			Phase: v1.PodFailed, StartTime: &crashStart,
			ContainerStatuses: []v1.ContainerStatus{{Name: "main", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: "Error", ExitCode: 3, StartedAt: crashStart, FinishedAt: ago(4 * time.Minute)}}}},
		},
	}
	fresh := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web2-board", UID: "9b4e"},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: "busybox:1.36"}}},
	}
	return []local.Pod{
		{Pod: web, WorkerState: "syncing", MemoryBytes: 45 << 20, Containers: []local.Container{
			{Name: "nginx", ID: "ccc", LogPath: "/var/log/pods/default_web-board_6e1b/nginx/2.log", MemoryBytes: 40<<20 + 1},
			{Name: "proxy", ID: "bbb", LogPath: "/var/log/pods/default_web-board_6e1b/proxy/0.log", MemoryBytes: 5<<20 + 300<<10},
		}},
		{Pod: crash, WorkerState: "syncing"},
		{Pod: job, WorkerState: "terminated"},
		{Pod: fresh, WorkerState: "syncing"},
	}
}

func sampleEvents() []event.Event {
	web := pod.Ref{UID: "6e1b", Namespace: "default", Name: "web-board"}
	return []event.Event{
		{Type: "Normal", Reason: "Starting", Message: "tinylet starts", Count: 1, First: now.Add(-27 * time.Hour), Last: now.Add(-27 * time.Hour)},
		{Pod: web, Type: "Normal", Reason: "Started", Message: "started nginx", Count: 3, First: now.Add(-26 * time.Hour), Last: now.Add(-10 * time.Minute)},
		{Pod: web, Type: "Warning", Reason: "BackOff", Message: "back-off\nrestarting", Count: 1, First: now.Add(-11 * time.Minute), Last: now.Add(-11 * time.Minute)},
		{Pod: pod.Ref{UID: "0", Namespace: "default", Name: "web-board"}, Type: "Normal", Reason: "Killing", Message: "an earlier life", Count: 1, First: now.Add(time.Hour), Last: now.Add(time.Hour)},
	}
}

func TestOutputs(t *testing.T) {
	n := newNode(t, samplePods(), sampleEvents(), func(c *local.Config) {
		c.Usage = func(context.Context) (*local.Usage, error) { return sampleUsage(), nil }
	})
	for _, tt := range []struct {
		name string
		args []string
	}{
		{"top.txt", []string{"top"}},
		{"top-containers.txt", []string{"top", "--once", "--containers", "--sort", "memory"}},
		{"top-names.txt", []string{"top", "--sort=name"}},
		{"top.json", []string{"top", "-o", "json"}},
		{"help-top.txt", []string{"top", "--help"}},
		{"ps.txt", []string{"ps"}},
		{"ps-pods.txt", []string{"ps", "--containers=false"}},
		{"ps-some.txt", []string{"ps", "default/web"}},
		{"ps.json", []string{"ps", "-o", "json"}},
		{"describe-web.txt", []string{"describe", "web-board"}},
		{"describe-crash.txt", []string{"describe", "crash"}},
		{"describe-new.txt", []string{"describe", "default/web2"}},
		{"describe-crash.json", []string{"describe", "crash", "-o", "json"}},
		{"events.txt", []string{"events"}},
		{"events-warnings.txt", []string{"events", "--types", "warning"}},
		{"events-both.txt", []string{"events", "--types", "Normal,Warning", "web"}},
		{"events.json", []string{"events", "default/web", "-o", "json"}},
		{"help-ps.txt", []string{"ps", "--help"}},
		{"help-describe.txt", []string{"describe", "--help"}},
		{"help-logs.txt", []string{"logs", "--help"}},
		{"help-events.txt", []string{"events", "--help"}},
		{"help-check.txt", []string{"check", "--help"}},
		{"help-journal-key.txt", []string{"journal-key", "--help"}},
		{"help-metrics.txt", []string{"metrics", "--help"}},
		{"help-net.txt", []string{"net", "--help"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, errs, err := n.run(t, tt.args...)
			if err != nil || errs != "" {
				t.Fatalf("error %v, stderr %q", err, errs)
			}
			golden(t, tt.name, out)
			if strings.HasSuffix(tt.name, ".json") && !json.Valid([]byte(out)) {
				t.Error("not JSON")
			}
			if strings.HasSuffix(tt.name, ".txt") && strings.ContainsAny(out, "\x1b\t") {
				t.Error("control characters in a table")
			}
		})
	}
}

func TestNothingToShow(t *testing.T) {
	n := newNode(t, []local.Pod{}, nil)
	for _, tt := range []struct {
		args           []string
		stdout, stderr string
	}{
		{[]string{"ps"}, "", "no pods\n"},
		{[]string{"ps", "-o", "json"}, "{\n  \"pods\": []\n}\n", ""},
		{[]string{"events"}, "", "no events\n"},
		{[]string{"events", "-o", "json"}, "{\n  \"events\": []\n}\n", ""},
	} {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			out, errs, err := n.run(t, tt.args...)
			if err != nil || out != tt.stdout || errs != tt.stderr {
				t.Errorf("stdout %q, stderr %q, %v", out, errs, err)
			}
		})
	}
}

func TestErrors(t *testing.T) {
	n := newNode(t, samplePods(), nil)
	gone := newNode(t, nil, nil)
	for _, tt := range []struct {
		name string
		node *node
		args []string
		code int
		want string
	}{
		{"no agent", gone, []string{"ps"}, codeNoAgent, "is not running"},
		{"no agent, describe", gone, []string{"describe", "web"}, codeNoAgent, "is not running"},
		{"no agent, events", gone, []string{"events"}, codeNoAgent, "is not running"},
		{"no such pod", n, []string{"describe", "nothing"}, codeNotFound, `no pod has the name or name prefix "nothing"`},
		{"ambiguous", n, []string{"describe", "web"}, codeNotFound, "default/web-board, default/web2-board"},
		{"no such container", n, []string{"logs", "web-board", "-c", "x"}, codeNotFound, "setup, proxy, nginx"},
		{"no log yet", n, []string{"logs", "crash"}, codeNotFound, "CrashLoopBackOff back-off 80s [2J restarting main"},
		{"log is gone", n, []string{"logs", "web-board"}, codeNotFound, "it was removed"},
		{"bad form", n, []string{"ps", "-o", "yaml"}, 1, "table or json"},
		{"bad flag", n, []string{"ps", "--nothing"}, 1, "unknown flag: --nothing"},
		{"bad tail", n, []string{"logs", "web-board", "--tail", "-2"}, 1, "--tail"},
		{"bad since", n, []string{"logs", "web-board", "--since=-1s"}, 1, "--since"},
		{"follow the past", n, []string{"logs", "web-board", "-f", "-p"}, 1, "--previous"},
		{"bad type", n, []string{"events", "--types", "Error"}, 1, "Normal, Warning"},
		{"no agent to watch", gone, []string{"events", "--watch"}, codeNoAgent, "is not running"},
		{"nobody measures", n, []string{"top"}, 1, "not available"},
		{"no agent to measure", gone, []string{"top"}, codeNoAgent, "is not running"},
		{"bad order", n, []string{"top", "--sort", "age"}, 1, "cpu, memory, name"},
		{"bad interval", n, []string{"top", "--interval", "10ms"}, 1, "--interval"},
		{"too many arguments", n, []string{"describe", "a", "b"}, 1, "accepts 1 arg"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, _, err := tt.node.run(t, tt.args...)
			if err == nil || !strings.Contains(err.Error(), tt.want) || out != "" {
				t.Fatalf("error %v, stdout %q", err, out)
			}
			code := 1
			var e *ExitError
			if errors.As(err, &e) {
				code = e.ExitCode()
			}
			if code != tt.code {
				t.Errorf("code %d, want %d", code, tt.code)
			}
		})
	}
}

func TestBrokenPipeIsQuiet(t *testing.T) {
	n := newNode(t, samplePods(), sampleEvents())
	for _, args := range [][]string{{"ps"}, {"ps", "-o", "json"}, {"events"}, {"describe", "crash"}} {
		var errs bytes.Buffer
		if err := n.runTo(t, broken{}, &errs, args...); err != nil || errs.Len() > 0 {
			t.Errorf("%v: %v, stderr %q", args, err, errs.String())
		}
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) {
	return 0, &net.OpError{Op: "write", Err: os.NewSyscallError("write", syscall.EPIPE)}
}

func TestLogs(t *testing.T) {
	const stamp = "2026-05-06T07:00:00Z stdout F "
	pods := samplePods()
	n := newNode(t, pods, nil)
	pods[0].Containers[0].LogPath = n.log(t, "default_web-board_6e1b/nginx/2.log", stamp+"one\ngarbage\n"+stamp+"two\n")
	n.log(t, "default_web-board_6e1b/nginx/1.log", stamp+"before\n")
	pods[0].Containers[1].LogPath = n.log(t, "default_web-board_6e1b/proxy/0.log", stamp+"proxy\n")
	pods[1].Containers = []local.Container{{Name: "main", LogPath: n.log(t, "default_crash-board_7f2c/main/4.log", stamp+"crashed\n")}}
	const note = "defaulted container \"nginx\" out of: setup, proxy, nginx; select another one with -c\n"
	const damaged = "skipped damaged lines, which a power cut can cause: 1\n"
	for _, tt := range []struct {
		name           string
		args           []string
		stdout, stderr string
	}{
		{"all", []string{"web-board"}, "one\ntwo\n", note + damaged},
		{"last", []string{"web-board", "--tail", "1"}, "two\n", note},
		{"none", []string{"web-board", "--tail", "0"}, "", note},
		{"timestamps", []string{"web-board", "--tail", "1", "--timestamps"}, "2026-05-06T07:00:00.000000000Z two\n", note},
		{"too old", []string{"web-board", "--since", "5m"}, "", note + damaged},
		{"limit", []string{"web-board", "--limit-bytes", "2"}, "on", note + damaged},
		{"other container", []string{"default/web-board", "-c", "proxy"}, "proxy\n", ""},
		{"before the restart", []string{"web-board", "-c", "nginx", "-p"}, "before\n", ""},
		{"before a restart to come", []string{"crash", "-p"}, "crashed\n", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, errs, err := n.run(t, append([]string{"logs"}, tt.args...)...)
			if err != nil {
				t.Fatal(err)
			}
			if out != tt.stdout || errs != tt.stderr {
				t.Errorf("stdout %q, stderr %q", out, errs)
			}
		})
	}
	t.Run("nothing before", func(t *testing.T) {
		_, _, err := n.run(t, "logs", "web-board", "-c", "proxy", "-p")
		var e *ExitError
		if !errors.As(err, &e) || e.Code != codeNotFound {
			t.Errorf("error: %v", err)
		}
	})
	t.Run("annotated container", func(t *testing.T) {
		pods[0].Pod.Annotations[annotationDefaultContainer] = "proxy"
		out, _, err := n.run(t, "logs", "web-board")
		if err != nil || out != "proxy\n" {
			t.Errorf("stdout %q, %v", out, err)
		}
	})
}

func TestLogsWithoutAgent(t *testing.T) {
	const stamp = "2026-05-06T07:00:00Z stdout F "
	n := newNode(t, nil, nil)
	old := n.log(t, "default_web-board_old/nginx/7.log", stamp+"old\n")
	if err := os.Chtimes(old, now, now.AddDate(-1, 0, 0)); err != nil {
		t.Fatal(err)
	}
	n.log(t, "default_web-board_new/nginx/0.log", stamp+"new\n")
	out, errs, err := n.run(t, "logs", "web")
	if err != nil || out != "new\n" || !strings.Contains(errs, "the agent is not running") {
		t.Errorf("stdout %q, stderr %q, %v", out, errs, err)
	}
	if _, _, err := n.run(t, "logs", "web", "-p"); err == nil {
		t.Error("a log before the first was found")
	}
	if _, _, err := n.run(t, "logs", "other"); err == nil {
		t.Error("an unknown pod was found")
	}
}

func TestLogsFollow(t *testing.T) {
	const stamp = "2026-05-06T07:00:00Z stdout F "
	pods := samplePods()[1:2]
	n := newNode(t, pods, nil)
	path := n.log(t, "default_crash-board_7f2c/main/4.log", stamp+"one\n")
	pods[0].Containers = []local.Container{{Name: "main", LogPath: path}}
	root := &cobra.Command{Use: "tinylet", SilenceErrors: true}
	root.AddCommand(n.system.commands()...)
	root.SetArgs([]string{"logs", "crash", "-f", "--socket", n.socket})
	in, out := io.Pipe()
	root.SetOut(out)
	root.SetErr(io.Discard)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- root.ExecuteContext(ctx) }()
	read := func(want string) {
		t.Helper()
		got := make([]byte, len(want))
		if _, err := io.ReadFull(in, got); err != nil || string(got) != want {
			t.Fatalf("read %q, %v", got, err)
		}
	}
	read("one\n")
	n.log(t, "default_crash-board_7f2c/main/5.log", stamp+"after the restart\n")
	read("after the restart\n")
	cancel()
	var e *ExitError
	if err := <-done; !errors.As(err, &e) || e.Code != codeInterrupted || err.Error() != "" {
		t.Errorf("error: %v", err)
	}
}

// TestLogsFollowWaits follows a container that has not started yet.
func TestLogsFollowWaits(t *testing.T) {
	n := newNode(t, samplePods()[3:], nil)
	root := &cobra.Command{Use: "tinylet", SilenceErrors: true}
	root.AddCommand(n.system.commands()...)
	root.SetArgs([]string{"logs", "web2", "-f", "--socket", n.socket})
	in, out := io.Pipe()
	notes, errs := io.Pipe()
	root.SetOut(out)
	root.SetErr(errs)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- root.ExecuteContext(ctx) }()
	note := make([]byte, 200)
	got, err := notes.Read(note)
	if want := "container \"main\" has no log yet: it is Waiting; waiting for it\n"; err != nil || string(note[:got]) != want {
		t.Fatalf("note %q, %v", note[:got], err)
	}
	n.log(t, "default_web2-board_9b4e/main/0.log", "2026-05-06T07:00:00Z stdout F one\n")
	line := make([]byte, len("one\n"))
	if _, err := io.ReadFull(in, line); err != nil || string(line) != "one\n" {
		t.Fatalf("read %q, %v", line, err)
	}
	cancel()
	var e *ExitError
	if err := <-done; !errors.As(err, &e) || e.Code != codeInterrupted {
		t.Errorf("error: %v", err)
	}
}

func TestEventsWatch(t *testing.T) {
	r := event.NewRecorder(slog.New(slog.DiscardHandler))
	n := newNode(t, samplePods(), nil, func(c *local.Config) {
		c.Watch = func(ctx context.Context, handle func([]event.Event) error) error {
			if err := handle(sampleEvents()); err != nil {
				return err
			}
			return r.Watch(ctx, handle)
		}
	})
	for _, tt := range []struct {
		name        string
		args        []string
		first, next string
	}{
		{
			"table", []string{"web", "-w"},
			"TIME (UTC)           TYPE     REASON            POD                           MESSAGE\n" +
				"2026-05-06 06:58:09  Normal   Started           default/web-board             started nginx (x3)\n" +
				"2026-05-06 06:57:09  Warning  BackOff           default/web-board             back-off restarting\n" +
				"2026-05-06 08:08:09  Normal   Killing           default/web-board             an earlier life\n",
			" [31m red",
		},
		{
			"documents", []string{"--watch", "-o", "json", "--types=Warning"},
			`{"namespace":"default","pod":"web-board","uid":"6e1b","type":"Warning","reason":"BackOff","message":"back-off\nrestarting","count":1,"first":"2026-05-06T06:57:09Z","last":"2026-05-06T06:57:09Z"}` + "\n",
			`"message":"\u001b\u009b[31m red"`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := &cobra.Command{Use: "tinylet", SilenceErrors: true}
			root.AddCommand(n.system.commands()...)
			root.SetArgs(append([]string{"events", "--socket", n.socket}, tt.args...))
			in, out := io.Pipe()
			root.SetOut(out)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			done := make(chan error, 1)
			go func() { done <- root.ExecuteContext(ctx) }()
			lines := bufio.NewReader(in)
			var got strings.Builder
			for range strings.Count(tt.first, "\n") {
				line, err := lines.ReadString('\n')
				if err != nil {
					t.Fatal(err)
				}
				got.WriteString(line)
			}
			if diff := cmp.Diff(tt.first, got.String()); diff != "" {
				t.Fatalf("first events (-want +got):\n%s", diff)
			}
			r.Warning(pod.Ref{Namespace: "default", Name: "web-board"}, "Failed", "\x1b\u009b[31m red")
			if line, err := lines.ReadString('\n'); err != nil || !strings.Contains(line, tt.next) {
				t.Errorf("next event %q, %v", line, err)
			}
			cancel()
			// A pending write must not block.
			drained := make(chan struct{})
			go func() {
				defer close(drained)
				_, _ = io.Copy(io.Discard, lines)
			}()
			defer func() {
				_ = in.Close()
				<-drained
			}()
			var e *ExitError
			if err := <-done; !errors.As(err, &e) || e.Code != codeInterrupted {
				t.Errorf("error: %v", err)
			}
		})
	}
}

// Only the commands that watch had the exit code of an interrupted command.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	n := newNode(t, samplePods(), nil)
	for _, args := range [][]string{
		{"ps"}, {"describe", "crash"}, {"status"}, {"metrics"}, {"top", "--once"}, {"events"}, {"events", "-w"},
		{"logs", "crash"}, {"drain-local"}, {"drain-local", "--cancel"}, {"exec", "--socket", n.socket, "crash", "--", "ls"},
	} {
		root := &cobra.Command{Use: "tinylet", SilenceErrors: true, SilenceUsage: true}
		root.AddCommand(n.system.commands()...)
		if args[0] != "exec" {
			args = append(args, "--socket", n.socket)
		}
		root.SetArgs(args)
		root.SetOut(io.Discard)
		root.SetErr(io.Discard)
		var e *ExitError
		if err := root.ExecuteContext(ctx); !errors.As(err, &e) || e.Code != codeInterrupted || err.Error() != "" {
			t.Errorf("%v: error %v", args, err)
		}
	}
}

func TestPollTimeout(t *testing.T) {
	for d, want := range map[time.Duration]int{-time.Second: 0, time.Second: 1000, 600 * time.Hour: math.MaxInt32} {
		if got := pollTimeout(d); got != want {
			t.Errorf("%v: %d ms, want %d", d, got, want)
		}
	}
}

func TestCheck(t *testing.T) {
	n := newNode(t, nil, nil)
	out, errs, err := n.run(t, "check")
	var e *ExitError
	if !errors.As(err, &e) || e.Code != 1 || err.Error() != "" || errs != "" {
		t.Fatalf("an empty file system: error %v, stderr %q", err, errs)
	}
	for _, want := range []string{"FAIL", "cgroup-v2", "-> ", "this node cannot work: "} {
		if !strings.Contains(out, want) {
			t.Errorf("output lacks %q:\n%s", want, out)
		}
	}
	out, _, err = n.run(t, "check", "-q", "-o", "json")
	var doc CheckDocument
	if jerr := json.Unmarshal([]byte(out), &doc); jerr != nil || err == nil || doc.OK || len(doc.Findings) == 0 {
		t.Fatalf("document %+v, %v, %v", doc, jerr, err)
	}
	for _, f := range doc.Findings {
		if f.Level == "ok" || f.Remedy == "" || f.What == "" {
			t.Errorf("finding %+v", f)
		}
	}
}

func TestCheckReadsTheConfiguration(t *testing.T) {
	n := newNode(t, nil, nil)
	path := filepath.Join(n.system.root, "etc/tinylet/config.yaml")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, content, want string }{
		{"valid", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nstaticPodPath: /etc/kubernetes/manifests\n", "is valid"},
		{"invalid", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: -7\n", "maxPods"},
		{
			"more reserved than the machine has", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nkubeReserved: {cpu: 100k}\n",
			"is invalid: 100k of cpu are reserved, but the capacity is ",
		},
		{"no YAML", "{", "is invalid"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := os.WriteFile(path, []byte(tt.content), 0o644); err != nil {
				t.Fatal(err)
			}
			out, _, _ := n.run(t, "check") // fails for other reasons
			if !strings.Contains(out, path) || !strings.Contains(out, tt.want) {
				t.Errorf("output lacks %q and %q:\n%s", path, tt.want, out)
			}
		})
	}
}

func TestCommandsAreComplete(t *testing.T) {
	for _, c := range Commands() {
		if c.Short == "" || c.Long == "" || c.Example == "" || c.RunE == nil {
			t.Errorf("%s lacks a text or a function", c.Name())
		}
	}
}

func TestUptimeGrows(t *testing.T) {
	a := uptime()
	if b := uptime(); a <= 0 || b < a {
		t.Errorf("uptime %v, then %v", a, b)
	}
}
