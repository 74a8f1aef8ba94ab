//go:build cluster

package cluster

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// TestKubectl looks into a node as people do.
func TestKubectl(t *testing.T) {
	l := newLab(t)
	l.until("the node is Ready", l.nodeReady)
	l.c.Apply(t, lookedInto)
	l.until("the pods run", func() string { return l.running("look=into", 2) })
	for _, step := range []struct {
		name string
		test func(lab)
	}{
		{"logs", lab.logs},
		{"exec", lab.exec},
		{"exec on a terminal", lab.execTerminal},
		{"attach", lab.attach},
		{"debug", lab.debug},
		{"port-forward", lab.portForward},
		{"copy", lab.copies},
		{"fifty sessions", lab.sessions},
		{"raw", lab.raw},
		{"top", lab.top},
		{"metrics-server", lab.metricsServer},
		{"who may", lab.whoMay},
		{"memory", func(l lab) { l.memory("minutes after the sessions", 12) }},
		{"idle session", lab.idleSession}, // starts the agent anew
	} {
		t.Run(step.name, func(t *testing.T) { step.test(l.with(t)) })
	}
	for _, e := range l.c.Refused(t) {
		t.Errorf("the cluster refused %+v", e)
	}
}

const lookedInto = `apiVersion: v1
kind: Pod
metadata: {name: web, labels: {look: into}}
spec:
  terminationGracePeriodSeconds: 2
  containers:
  - name: main
    image: localhost/busybox:1
    command: [sh, -c, "mkdir /www; echo it works > /www/index.html; trap 'exit 0' TERM; httpd -f -p 8080 -h /www & wait"]
    volumeMounts: [{name: data, mountPath: /data}]
  - {name: side, image: localhost/busybox:1, stdin: true, command: [sh, -c, "while read line; do echo got $line; done; sleep 100000"]}
  volumes: [{name: data, emptyDir: {}}]
---
apiVersion: v1
kind: Pod
metadata: {name: talker, labels: {look: into}}
spec:
  terminationGracePeriodSeconds: 2
  containers:
  - name: main
    image: localhost/busybox:1
    command: [sh, -c, "if mkdir /keep/once 2>/dev/null; then echo first life; exit 3; fi; for i in 1 2 3 4 5; do echo line $i; done; sleep 2; echo wrong >&2; exec sleep 100000"]
    volumeMounts: [{name: keep, mountPath: /keep}]
  volumes: [{name: keep, emptyDir: {}}]
`

func (l lab) logs() {
	l.until("all is said", func() string {
		if got := l.c.Must(l.T, "logs", "talker"); !strings.Contains(got, "wrong") {
			return got
		}
		return ""
	})
	for _, row := range []struct{ args, want string }{
		{"logs talker", "line 1\nline 2\nline 3\nline 4\nline 5\nwrong"},
		{"logs talker --tail=2", "line 5\nwrong"},
		{"logs talker --tail=0", ""},
		{"logs talker --since=1h --tail=1", "wrong"},
		{"logs talker --since-time=2099-01-01T00:00:00Z", ""},
		{"logs talker --previous", "first life"},
		{"logs talker --limit-bytes=8", "line 1\nl"},
		{"logs web -c side", ""},
	} {
		if got := l.c.Must(l.T, strings.Fields(row.args)...); got != row.want {
			l.Errorf("kubectl %s: %q, want %q", row.args, got, row.want)
		}
	}
	stamped := l.c.Must(l.T, "logs", "talker", "--timestamps", "--tail=1")
	if ok, _ := regexp.MatchString(`^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z wrong$`, stamped); !ok {
		l.Errorf("with times: %q", stamped)
	}
	if _, err := l.c.Kubectl(l.Context(), "logs", "talker", "-c", "nobody"); err == nil || !strings.Contains(err.Error(), "nobody") {
		l.Errorf("logs of a container that there is not: %v", err)
	}
	l.follow()
}

// follow follows a log to the end of its container.
func (l lab) follow() {
	l.c.Apply(l.T, strings.Replace(single("brief", "for i in $(seq 12); do echo said $i; sleep 1; done"), "spec:\n", "spec:\n  restartPolicy: Never\n", 1))
	l.until("it runs", func() string {
		if got := l.c.Must(l.T, "get", "pod", "brief", "--output=jsonpath={.status.phase}"); got != "Running" {
			return got
		}
		return ""
	})
	ctx, cancel := context.WithTimeout(l.Context(), patience)
	defer cancel()
	cmd := l.c.Command(l.T, ctx, "logs", "-f", "brief")
	out, err := cmd.StdoutPipe()
	if err != nil {
		l.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		l.Fatal(err)
	}
	n, early := 0, false
	for s := bufio.NewScanner(out); s.Scan(); {
		if n++; s.Text() != fmt.Sprint("said ", n) {
			l.Errorf("line %d is %q", n, s.Text())
		}
		if n == 6 { // it comes while the container still speaks
			early = l.c.Must(l.T, "get", "pod", "brief", "--output=jsonpath={.status.phase}") == "Running"
		}
	}
	if err := cmd.Wait(); err != nil || n != 12 {
		l.Errorf("followed %d lines of 12: %v", n, err)
	}
	if !early {
		l.Error("what is followed comes late")
	}
}

// code is what kubectl ends with.
func code(err error) int {
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return exit.ExitCode()
	}
	if err != nil {
		return -1
	}
	return 0
}

func (l lab) exec() {
	ctx, cancel := context.WithTimeout(l.Context(), patience)
	defer cancel()
	var out, said bytes.Buffer
	cmd := l.c.Command(l.T, ctx, "exec", "web", "-c", "main", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	if code(err) != 7 || out.String() != "out\n" || !strings.HasPrefix(said.String(), "err\n") {
		l.Errorf("exec: %v, stdout %q, stderr %q", err, &out, &said)
	}
	// The end of stdin reaches the command, which then tells what it has had.
	data := make([]byte, 1<<20)
	for i := range data {
		data[i] = byte(rand.N(256))
	}
	out.Reset()
	cmd = l.c.Command(l.T, ctx, "exec", "-i", "web", "-c", "main", "--", "sha256sum")
	cmd.Stdin, cmd.Stdout = bytes.NewReader(data), &out
	if err := cmd.Run(); err != nil || !strings.HasPrefix(out.String(), fmt.Sprintf("%x", sha256.Sum256(data))) {
		l.Errorf("exec with a stdin: %v, %q", err, &out)
	}
	for what, args := range map[string][]string{
		"no such command":   {"exec", "web", "-c", "main", "--", "/no/such"},
		"no such container": {"exec", "web", "-c", "nobody", "--", "true"},
		"no such pod":       {"exec", "nobody", "--", "true"},
	} {
		if out, err := l.c.Kubectl(ctx, args...); err == nil {
			l.Errorf("%s: %q", what, out)
		}
	}
}

func (l lab) execTerminal() {
	ctx, cancel := context.WithTimeout(l.Context(), patience)
	defer cancel()
	term := openTerminal(l.T, l.c.Command(l.T, ctx, "exec", "-it", "web", "-c", "main", "--", "sh"), 33, 111)
	term.shows("# ")
	term.types("stty size; tty\n")
	term.shows("33 111")
	term.shows("/dev/pts/")
	term.resize(44, 122)
	l.until("the new size is known", func() string {
		term.types("stty size\n")
		time.Sleep(time.Second)
		if !strings.Contains(term.text(), "44 122") {
			return term.text()
		}
		return ""
	})
	term.types("sleep 1000\n")
	time.Sleep(time.Second)
	term.types("\x03exit 5\n") // Ctrl-C
	if got := term.code(); got != 5 {
		l.Errorf("the shell ended with 5, kubectl with %d: %q", got, term.text())
	}
}

func (l lab) attach() {
	ctx, cancel := context.WithTimeout(l.Context(), patience)
	defer cancel()
	cmd := l.c.Command(l.T, ctx, "attach", "-i", "web", "-c", "side", "--quiet")
	in, err := cmd.StdinPipe()
	if err != nil {
		l.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		l.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		l.Fatal(err)
	}
	read := bufio.NewReader(out)
	for _, word := range []string{"one", "two"} {
		if _, err := io.WriteString(in, word+"\n"); err != nil {
			l.Fatal(err)
		}
		if line, err := read.ReadString('\n'); line != "got "+word+"\n" {
			l.Fatalf("attached, said %s, heard %q, %v", word, line, err)
		}
	}
	cancel() // and is gone without a word
	_ = cmd.Wait()
	if got := l.c.Must(l.T, "get", "pod", "web", "--output=jsonpath={.status.containerStatuses[*].restartCount}"); got != "0 0" {
		l.Errorf("restarts %q after a client went away", got)
	}
}

func (l lab) debug() {
	ctx, cancel := context.WithTimeout(l.Context(), patience)
	defer cancel()
	// Its stdin stays open: a container's stdin that has ended is its end.
	term := openTerminal(l.T, l.c.Command(l.T, ctx, "debug", "-it", "web", "--image=localhost/busybox:1", "--image-pull-policy=IfNotPresent",
		"--target=main", "--container=look", "--", "sh"), 24, 200)
	l.until("it is attached to", func() string {
		term.types("ps\n")
		time.Sleep(2 * time.Second)
		if !strings.Contains(term.text(), "httpd -f") {
			return term.text()
		}
		return ""
	})
	term.types("exit 0\n")
	if got := term.code(); got != 0 {
		l.Errorf("kubectl debug ended with %d: %q", got, term.text())
	}
}

func (l lab) portForward() {
	ctx, cancel := context.WithTimeout(l.Context(), patience)
	defer cancel()
	cmd := l.c.Command(l.T, ctx, "port-forward", "--address=10.77.0.1", "pod/web", "18080:8080")
	out, err := cmd.StdoutPipe()
	if err != nil {
		l.Fatal(err)
	}
	cmd.Stderr = lines{l.T}
	if err := cmd.Start(); err != nil {
		l.Fatal(err)
	}
	defer func() { cancel(); _ = cmd.Wait() }()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.Contains(line, "Forwarding from") {
		l.Fatalf("port-forward says %q, %v", line, err)
	}
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			body, err := l.fetch(ctx, "http://10.77.0.1:18080/")
			if err != nil || body != "it works\n" {
				l.Errorf("over the forwarded port: %q, %v", body, err)
			}
		})
	}
	wg.Wait()
}

// fetch reads a URL inside the cluster's network.
func (l lab) fetch(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	res, err := l.c.Client().Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	return string(data), err
}

// copied is how much is copied either way.
const copied = 100 << 20

func (l lab) copies() {
	dir := l.TempDir()
	there, back := filepath.Join(dir, "there"), filepath.Join(dir, "back")
	f, err := os.Create(there)
	if err != nil {
		l.Fatal(err)
	}
	sum := sha256.New()
	random := rand.NewChaCha8([32]byte{1})
	if _, err := io.Copy(io.MultiWriter(f, sum), io.LimitReader(random, copied)); err != nil {
		l.Fatal(err)
	}
	if err := f.Close(); err != nil {
		l.Fatal(err)
	}
	want := fmt.Sprintf("%x", sum.Sum(nil))
	start := time.Now()
	l.c.Must(l.T, "cp", "-c", "main", there, "web:/data/there")
	l.Logf("%d MB to the pod: %.0f s", copied>>20, time.Since(start).Seconds())
	if got := l.c.Must(l.T, "exec", "web", "-c", "main", "--", "sha256sum", "/data/there"); !strings.HasPrefix(got, want) {
		l.Errorf("in the pod %q, want %s", got, want)
	}
	start = time.Now()
	l.c.Must(l.T, "cp", "-c", "main", "web:/data/there", back)
	l.Logf("%d MB back: %.0f s", copied>>20, time.Since(start).Seconds())
	data, err := os.ReadFile(back)
	if got := fmt.Sprintf("%x", sha256.Sum256(data)); err != nil || got != want {
		l.Errorf("back: %s of %d bytes, %v, want %s", got, len(data), err, want)
	}
	l.memory("after the copies", 12)
}

// sessions holds many sessions at once, and does not fail the next.
func (l lab) sessions() {
	const many = 50
	ctx, cancel := context.WithTimeout(l.Context(), 3*patience)
	defer cancel()
	var wg sync.WaitGroup
	var open sync.WaitGroup
	open.Add(many)
	for i := range many {
		wg.Go(func() {
			cmd := l.c.Command(l.T, ctx, "exec", "-i", "web", "-c", "main", "--", "cat")
			var said bytes.Buffer
			cmd.Stderr = &said
			in, err := cmd.StdinPipe()
			if err != nil {
				l.Error(err)
			}
			out, err := cmd.StdoutPipe()
			if err != nil {
				l.Error(err)
			}
			if err := cmd.Start(); err != nil {
				l.Error(err)
				open.Done()
				return
			}
			word := fmt.Sprintf("session %d\n", i)
			_, _ = io.WriteString(in, word) // the answer tells
			got, err := bufio.NewReader(out).ReadString('\n')
			if got != word {
				l.Errorf("session %d hears %q, %v", i, got, err)
			}
			open.Done()
			open.Wait()
			in.Close()
			if err := cmd.Wait(); err != nil {
				l.Errorf("session %d: %v: %s", i, err, &said)
			}
		})
	}
	open.Wait()
	l.Logf("with %d sessions: anonymous memory %s", many, l.sh("awk '/RssAnon/{print $2, $3}' /proc/"+agentPID+"/status"))
	wg.Wait()
	if got := l.c.Must(l.T, "exec", "web", "-c", "main", "--", "echo", "one more"); got != "one more" {
		l.Errorf("after them: %q", got)
	}
	l.memory("after the sessions", 12)
}

// raw reads the node's API through the API server.
func (l lab) raw() {
	read := func(path string) string {
		l.Helper()
		return l.c.Must(l.T, "get", "--raw", "/api/v1/nodes/"+name+"/proxy/"+path)
	}
	if got := read("healthz"); got != "ok" {
		l.Errorf("healthz: %q", got)
	}
	var pods corev1.PodList
	if err := json.Unmarshal([]byte(read("pods")), &pods); err != nil || len(pods.Items) < 2 {
		l.Errorf("pods: %d, %v", len(pods.Items), err)
	}
	if err := json.Unmarshal([]byte(read("runningpods/")), &pods); err != nil || len(pods.Items) < 2 {
		l.Errorf("running pods: %d, %v", len(pods.Items), err)
	}
	if got := read("configz"); !strings.Contains(got, `"kubeletconfig"`) || !strings.Contains(got, `"clientCAFile"`) {
		l.Errorf("configz: %q", got)
	}
	if got := read("logs/"); !strings.Contains(got, "tinylet.log") {
		l.Errorf("logs: %q", got)
	}
	l.summary(read("stats/summary"), true)
	l.summary(read("stats/summary?only_cpu_and_memory=true"), false)
	for path, wants := range map[string][]string{
		"metrics": {`kubelet_node_name{node="` + name + `"} 1`, "kubelet_running_pods 2", "kubelet_runtime_operations_total{", "kubelet_pleg_relist_duration_seconds_bucket{",
			"kubelet_pod_start_duration_seconds_count", "kubelet_certificate_manager_client_ttl_seconds", "rest_client_requests_total{", "process_resident_memory_bytes",
			"tinylet_api_bytes_total{"},
		"metrics/resource": {"node_cpu_usage_seconds_total ", "node_memory_working_set_bytes ", `container_cpu_usage_seconds_total{container="main",namespace="default",pod="web"}`,
			"pod_memory_working_set_bytes{", "container_start_time_seconds{", "resource_scrape_error 0"},
		"metrics/cadvisor": {"container_cpu_usage_seconds_total{", `image="localhost/busybox:1"`, "container_network_receive_bytes_total{", "machine_memory_bytes", "container_pressure_"},
		"metrics/probes":   nil,
	} {
		text := read(path)
		for _, want := range wants {
			if !strings.Contains(text, want) {
				l.Errorf("%s has no %s", path, want)
			}
		}
		l.lint(path, text)
	}
}

// summary judges /stats/summary.
func (l lab) summary(text string, full bool) {
	l.Helper()
	var s statsapi.Summary
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		l.Errorf("summary: %v: %s", err, text)
		return
	}
	if s.Node.NodeName != name || s.Node.CPU == nil || s.Node.Memory == nil || *s.Node.Memory.WorkingSetBytes == 0 {
		l.Errorf("summary of the node: %+v", s.Node)
	}
	if full != (s.Node.Fs != nil) || full != (s.Node.Network != nil) {
		l.Errorf("summary, full %v: file system %+v, network %+v", full, s.Node.Fs, s.Node.Network)
	}
	seen := 0
	for _, p := range s.Pods {
		if p.PodRef.Name != "web" {
			continue
		}
		for _, c := range p.Containers {
			if c.CPU == nil || c.Memory == nil || *c.CPU.UsageCoreNanoSeconds == 0 || *c.Memory.WorkingSetBytes == 0 {
				l.Errorf("summary of container %s: %+v", c.Name, c)
			}
			seen++
		}
		if !full {
			continue
		}
		if p.Network == nil || p.Network.Name != "eth0" || p.Network.RxBytes == nil || *p.Network.RxBytes == 0 {
			l.Errorf("network of the pod: %+v", p.Network)
		}
		if p.EphemeralStorage == nil || p.EphemeralStorage.UsedBytes == nil || *p.EphemeralStorage.UsedBytes < copied {
			l.Errorf("ephemeral storage of the pod: %+v, want the %d bytes copied", p.EphemeralStorage, copied)
		}
		for _, v := range p.VolumeStats {
			if v.Name == "data" && (v.UsedBytes == nil || *v.UsedBytes < copied) {
				l.Errorf("volume %+v", v)
			}
		}
	}
	if seen < 2 {
		l.Errorf("summary tells of %d containers of the pod web", seen)
	}
}

// idleSession has sessions end over which nothing but pings goes for the
// configured time: kubectl's by way of the API server, and one from the board.
// Another that is used in time goes on.
func (l lab) idleSession() {
	l.put("/etc/tinylet/config.yaml", config+"streamingConnectionIdleTimeout: 15s\n")
	l.sh("/etc/init.d/S50tinylet restart")
	l.until("sessions begin again", func() string {
		if out, err := l.c.Kubectl(l.Context(), "exec", "web", "-c", "main", "--", "echo", "here"); out != "here" {
			return fmt.Sprintf("%q, %v", out, err)
		}
		return ""
	})
	used, idle := l.cat(), l.cat()
	for range 8 { // more than twice the time
		time.Sleep(5 * time.Second)
		if _, err := fmt.Fprintln(used.in, "still here"); err != nil {
			l.Errorf("write to the used session: %v", err)
		}
	}
	select {
	case took := <-idle.ended:
		l.Logf("kubectl's idle session of 15 s ended after %.0f s: %q", took.Seconds(), idle.out)
		if took < 15*time.Second {
			l.Error("it ended before its time")
		}
	default:
		l.Error("kubectl's idle session of 15 s goes on after 40 s")
	}
	select {
	case <-used.ended:
		l.Error("the used session has ended")
	default:
		used.in.Close()
		<-used.ended
		if n := strings.Count(used.out.String(), "still here"); n != 8 {
			l.Errorf("the used session echoed %d of 8 lines: %q", n, used.out)
		}
	}

	start := time.Now()
	said := l.sh(`mkfifo /tmp/idle; sleep 1000 > /tmp/idle & keeps=$!
tinylet exec -i web -c main -- cat < /tmp/idle 2>&1; echo "code $?"; kill $keeps; rm /tmp/idle`)
	took := time.Since(start)
	l.Logf("an idle session of 15 s ended after %.0f s: %s", took.Seconds(), said)
	if took < 15*time.Second || took > 2*time.Minute || strings.Contains(said, "code 0") {
		l.Errorf("it lasted %v: %s", took, said)
	}
}

// catSession is a kubectl whose input a test holds.
type catSession struct {
	in    io.WriteCloser
	out   *bytes.Buffer      // to be read when it has ended
	ended chan time.Duration // after that long
}

// cat begins a session that echoes; it is ended with the test.
func (l lab) cat() catSession {
	ctx, cancel := context.WithTimeout(l.Context(), patience)
	cmd := l.c.Command(l.T, ctx, "exec", "-i", "web", "-c", "main", "--", "cat")
	c := catSession{out: new(bytes.Buffer), ended: make(chan time.Duration, 1)}
	cmd.Stdout, cmd.Stderr = c.out, c.out
	var err error
	if c.in, err = cmd.StdinPipe(); err != nil {
		l.Fatal(err)
	}
	start := time.Now()
	if err := cmd.Start(); err != nil {
		l.Fatal(err)
	}
	go func() {
		defer cancel()
		_ = cmd.Wait() // how it ends is for the caller to see
		c.ended <- time.Since(start)
	}()
	return c
}
