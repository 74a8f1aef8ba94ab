package keeper

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/agent/container/native/oci"
)

// The test binary is also the keeper and the OCI runtime program.
const roleVariable = "KEEPER_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "keeper":
		build := os.Args[1]
		// The program of an upgrade has the same arguments and another name.
		if name, err := os.Readlink("/proc/self/exe"); err == nil && strings.HasSuffix(name, "-new") {
			build = "new"
		}
		os.Exit(runKeeper(os.Args[2], build))
	case "main":
		build := "main"
		if name, err := os.Readlink("/proc/self/exe"); err == nil && strings.HasSuffix(name, "-new") {
			build = "new"
		}
		environment = []string{roleVariable + "=oci", "PATH=" + os.Getenv("PATH")}
		os.Exit(Main(os.Args[1:], build, os.Stderr))
	case "oci":
		os.Exit(fakeOCI(os.Args[1:]))
	}
	os.Exit(m.Run())
}

func runKeeper(dir, build string) int {
	log := testLogger(os.Stderr)
	k, err := Open(Config{Dir: dir, Build: build, Env: []string{roleVariable + "=oci", "PATH=" + os.Getenv("PATH")}, Log: log})
	if err == nil {
		err = k.Run()
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// bundle is the part of config.json that the fake OCI runtime reads.
type bundle struct {
	Process struct {
		Args     []string `json:"args"`
		Terminal bool     `json:"terminal"`
	} `json:"process"`
	// Fail is the exit code of the program, Hang its sleep before it starts the container.
	Fail int           `json:"fail"`
	Hang time.Duration `json:"hang"`
}

// fakeOCI is `run --detach` of an OCI runtime, without a container around the process.
func fakeOCI(args []string) int {
	options := map[string]string{}
	for _, arg := range args {
		name, value, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		options[name] = value
	}
	fail := func(err error) int {
		_ = os.WriteFile(options["log"], []byte("level=error msg="+strconv.Quote(err.Error())+"\n"), 0o600)
		return 1
	}
	data, err := os.ReadFile(filepath.Join(options["bundle"], "config.json"))
	if err != nil {
		return fail(err)
	}
	var b bundle
	if err := json.Unmarshal(data, &b); err != nil {
		return fail(err)
	}
	time.Sleep(b.Hang)
	if b.Fail != 0 {
		return fail(errors.New("no such file in the image"))
	}
	files := []uintptr{0, 1, 2}
	attributes := &syscall.SysProcAttr{Setsid: true}
	if b.Process.Terminal {
		slave, err := sendTerminal(options["console-socket"])
		if err != nil {
			return fail(err)
		}
		files, attributes.Setctty = []uintptr{slave, slave, slave}, true
	}
	path, err := exec.LookPath(b.Process.Args[0])
	if err != nil {
		return fail(err)
	}
	pid, _, err := syscall.StartProcess(path, b.Process.Args, &syscall.ProcAttr{Dir: options["bundle"], Env: []string{"PATH=" + os.Getenv("PATH")}, Files: files, Sys: attributes})
	if err != nil {
		return fail(err)
	}
	if err := os.WriteFile(options["pid-file"], []byte(strconv.Itoa(pid)), 0o600); err != nil {
		return fail(err)
	}
	return 0
}

// sendTerminal makes a terminal, sends its master to a socket, and returns its slave.
func sendTerminal(socket string) (uintptr, error) {
	master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return 0, err
	}
	number, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err != nil {
		return 0, err
	}
	slave, err := unix.Open("/dev/pts/"+strconv.Itoa(number), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: socket}); err != nil {
		return 0, err
	}
	return uintptr(slave), unix.Sendmsg(fd, []byte("/dev/ptmx"), unix.UnixRights(master), nil, 0)
}

// lab is a keeper process and its client.
type lab struct {
	*testing.T
	Client
	dir     string // of bundles and logs
	process *exec.Cmd
	// messages are those of the keeper. They are complete when it was killed.
	messages bytes.Buffer
}

func newLab(t *testing.T) *lab {
	t.Helper()
	dir, err := os.MkdirTemp("", "keeper") // short, for the paths of sockets
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{T: t, Client: Client{Dir: filepath.Join(dir, "k")}, dir: dir}
	// The processes of containers survive the keeper. Those of the test end with it.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.kill()
		l.killChildren("/proc")
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	l.start()
	return l
}

// killChildren ends what the keeper has left: orphans are children of the test.
func (l *lab) killChildren(proc string) {
	processes, err := os.ReadDir(proc)
	if err != nil {
		l.Error(err)
	}
	for _, p := range processes {
		pid, err := strconv.Atoi(p.Name())
		if err != nil {
			continue
		}
		if cwd, err := os.Readlink(filepath.Join(proc, p.Name(), "cwd")); err == nil && strings.HasPrefix(cwd, l.dir) {
			_ = unix.Kill(pid, unix.SIGKILL)
			_, _ = unix.Wait4(pid, nil, 0, nil)
		}
	}
}

// start starts a keeper, and waits until it answers.
func (l *lab) start() {
	l.Helper()
	program, err := os.Executable()
	if err != nil {
		l.Fatal(err)
	}
	l.process = exec.Command(program, "first", l.Dir)
	l.process.Env = append(os.Environ(), roleVariable+"=keeper")
	l.process.Stderr = io.MultiWriter(os.Stderr, &l.messages)
	if err := l.process.Start(); err != nil {
		l.Fatal(err)
	}
	l.until("the keeper answers", func() bool {
		_, err := l.Hello(l.Context())
		return err == nil
	})
}

// kill kills the keeper.
func (l *lab) kill() {
	if l.process == nil {
		return
	}
	_ = l.process.Process.Kill()
	_ = l.process.Wait()
	l.process = nil
}

func (l *lab) until(what string, is func() bool) {
	l.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			l.Fatalf("timeout: %s", what)
		}
	}
}

// container describes a container that runs a script.
func (l *lab) container(id, script string, change ...func(*bundle, *Start)) *Start {
	l.Helper()
	var b bundle
	b.Process.Args = []string{"sh", "-c", script}
	program, err := os.Executable()
	if err != nil {
		l.Fatal(err)
	}
	s := &Start{ID: id, Program: []string{program, "--root=" + l.dir}, Bundle: filepath.Join(l.dir, "bundles", id), LogPath: filepath.Join(l.dir, "logs", id)}
	for _, c := range change {
		c(&b, s)
	}
	data, err := json.Marshal(b)
	if err == nil {
		err = os.MkdirAll(s.Bundle, 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(s.Bundle, "config.json"), data, 0o600)
	}
	if err != nil {
		l.Fatal(err)
	}
	return s
}

// run starts a container that runs a script.
func (l *lab) run(id, script string, change ...func(*bundle, *Start)) Container {
	l.Helper()
	state, err := l.Start(l.Context(), l.container(id, script, change...))
	if err != nil {
		l.Fatal(err)
	}
	if state.Phase != PhaseRunning && state.Phase != PhaseExited || state.PID <= 1 {
		l.Errorf("the started container is %+v", state)
	}
	return state
}

// state is that of a container.
func (l *lab) state(id string) Container {
	l.Helper()
	all, err := l.List(l.Context())
	if err != nil {
		l.Fatal(err)
	}
	for _, c := range all {
		if c.ID == id {
			return c
		}
	}
	return Container{}
}

// exit waits for the end of a container.
func (l *lab) exit(id string) Container {
	l.Helper()
	l.until("container "+id+" ends", func() bool { return l.state(id).Phase == PhaseExited })
	return l.state(id)
}

// log returns the entries of a container's log without their times.
func (l *lab) log(id string) []string {
	l.Helper()
	data, err := os.ReadFile(filepath.Join(l.dir, "logs", id))
	if err != nil {
		l.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(data)) {
		_, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		out = append(out, rest)
	}
	return out
}

func (l *lab) wantLog(id string, want ...string) {
	l.Helper()
	if got := l.log(id); strings.Join(got, "\n") != strings.Join(want, "\n") {
		l.Errorf("the log of %s has %.300q, want %.300q", id, got, want)
	}
}

func withStdin(_ *bundle, s *Start) { s.Stdin = true }

func withTerminal(b *bundle, s *Start) { b.Process.Terminal, s.Terminal = true, true }

func TestContainer(t *testing.T) {
	l := newLab(t)
	exits := make(chan Container, 10)
	ctx, cancel := context.WithCancel(t.Context())
	watched := make(chan error, 1)
	go func() { watched <- l.Watch(ctx, func(c Container) { exits <- c }) }()
	state := l.run("one", "echo out; echo err >&2; echo more > /dev/stdout; printf rest; exit 7")
	exit := <-exits
	if exit.ID != "one" || exit.ExitCode != 7 || !exit.CodeKnown || exit.PID != state.PID || exit.FinishedAt < exit.StartedAt {
		t.Errorf("the exit is %+v", exit)
	}
	got := l.log("one")
	if len(got) != 4 || strings.Count(strings.Join(got, "\n"), "stdout F") != 2 || !strings.Contains(strings.Join(got, "\n"), "stderr F err") || !strings.Contains(strings.Join(got, "\n"), "stdout P rest") {
		t.Errorf("the log has %q", got)
	}
	if _, err := l.Start(t.Context(), l.container("one", "true")); !errors.Is(err, ErrExists) {
		t.Errorf("a second container of the ID: %v", err)
	}
	if err := l.Reopen(t.Context(), "one"); !errors.Is(err, ErrNotRunning) {
		t.Errorf("reopen after the exit: %v", err)
	}
	if err := l.Acknowledge(t.Context(), "one"); err != nil {
		t.Error(err)
	}
	if all, err := l.List(t.Context()); len(all) > 0 || err != nil {
		t.Errorf("after the acknowledgement the keeper has %+v, %v", all, err)
	}
	if _, err := os.Stat(filepath.Join(l.Dir, "containers", "one")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its files: %v", err)
	}
	if err := l.Acknowledge(t.Context(), "one"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a second acknowledgement: %v", err)
	}
	running := l.run("two", "exec sleep 1000")
	if err := l.Acknowledge(t.Context(), "two"); !errors.Is(err, ErrInvalid) {
		t.Errorf("acknowledgement of a running container: %v", err)
	}
	if err := unix.Kill(running.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if exit := <-exits; exit.ID != "two" || exit.ExitCode != 137 || !exit.CodeKnown {
		t.Errorf("the exit of a killed container is %+v", exit)
	}
	cancel()
	if err := <-watched; !errors.Is(err, context.Canceled) {
		t.Errorf("the watch ended with %v", err)
	}
	// A new watch has what is not acknowledged.
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	go func() { watched <- l.Watch(ctx, func(c Container) { exits <- c }) }()
	if exit := <-exits; exit.ID != "two" {
		t.Errorf("a new watch has %+v", exit)
	}
}

// TestShortContainers have ended before the OCI runtime has.
func TestShortContainers(t *testing.T) {
	l := newLab(t)
	const parallel, rounds = 8, 5
	done := make(chan error, parallel)
	for worker := range parallel {
		go func() {
			for round := range rounds {
				id := fmt.Sprintf("c%d-%d", worker, round)
				if _, err := l.Start(t.Context(), l.container(id, "exit "+strconv.Itoa(worker))); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range parallel {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	for worker := range parallel {
		for round := range rounds {
			if got := l.exit(fmt.Sprintf("c%d-%d", worker, round)); !got.CodeKnown || int(got.ExitCode) != worker {
				t.Errorf("the exit is %+v, want %d", got, worker)
			}
		}
	}
}

func TestRuntimeFails(t *testing.T) {
	l := newLab(t)
	for _, row := range []struct {
		name   string
		change func(*bundle, *Start)
		want   error
		text   string
	}{
		{"it fails", func(b *bundle, _ *Start) { b.Fail = 1 }, oci.ErrFailed, "no such file in the image"},
		{"it hangs", func(b *bundle, s *Start) { b.Hang, s.TimeoutSeconds = time.Hour, 1 }, oci.ErrFailed, "within 1s"},
		{"it does not exist", func(_ *bundle, s *Start) { s.Program = []string{"/nonexistent"} }, oci.ErrFailed, "/nonexistent"},
		{"it has no absolute path", func(_ *bundle, s *Start) { s.Program = []string{"crun"} }, ErrInvalid, "crun"},
		{"the ID is a path", func(_ *bundle, s *Start) { s.ID = "../x" }, ErrInvalid, "../x"},
		{"the bundle does not exist", func(_ *bundle, s *Start) { s.Bundle += "/none" }, oci.ErrFailed, "/none"},
		{"the log is a directory", func(_ *bundle, s *Start) { s.LogPath = l.dir }, nil, "open log"},
		{"it sends no terminal", func(_ *bundle, s *Start) { s.Terminal = true }, oci.ErrFailed, "terminal"},
	} {
		t.Run(row.name, func(t *testing.T) {
			var later Start
			l.container("failing", "exec sleep 1000", func(b *bundle, s *Start) {
				later = *s
				row.change(b, &later)
			})
			s := &later
			_, err := l.Start(t.Context(), s)
			if err == nil || row.want != nil && !errors.Is(err, row.want) || !strings.Contains(err.Error(), row.text) {
				t.Errorf("got %v, want %v: %q", err, row.want, row.text)
			}
			if got := l.state(s.ID); got.ID != "" {
				t.Errorf("the keeper has %+v", got)
			}
		})
	}
	l.run("failing", "true")
	l.exit("failing")
}

// TestOrphans has processes whose parents end and that become children of the keeper.
func TestOrphans(t *testing.T) {
	l := newLab(t)
	l.run("parent", "i=0; while [ $i -lt 300 ]; do (sh -c 'sleep 0.01' &); i=$((i+1)); done; exec sleep 1000")
	l.until("no zombie is left", func() bool {
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", l.process.Process.Pid, l.process.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		return len(strings.Fields(string(children))) == 1 && len(l.log("parent")) == 0
	})
}

// counter prints numbers until it is killed.
const counter = "i=0; while :; do i=$((i+1)); echo $i; done"

// wantCounted checks that a log has all numbers, and how many are missing.
func (l *lab) wantCounted(id string, mayLose int) (last int) {
	l.Helper()
	missing := 0
	for _, entry := range l.log(id) {
		number, err := strconv.Atoi(strings.TrimPrefix(entry, "stdout F "))
		if mayLose > 0 && (err != nil || number <= last) {
			missing++ // the rest of a line whose beginning is lost
			continue
		}
		if err != nil || number <= last {
			l.Errorf("%q comes after %d", entry, last)
			continue
		}
		missing += number - last - 1
		last = number
	}
	if missing > mayLose {
		l.Errorf("%d lines are missing, at most %d may be", missing, mayLose)
	}
	return last
}

// TestKeeperKilled kills the keeper while containers write.
func TestKeeperKilled(t *testing.T) {
	l := newLab(t)
	before := l.run("counter", counter)
	quiet := l.run("quiet", "read line; echo got $line; exit 5", withStdin)
	input, err := l.Attach(t.Context(), "quiet", nil, nil) // keeps the standard input open
	if err != nil {
		t.Fatal(err)
	}
	l.run("ended", "exit 3")
	l.exit("ended")
	for range 3 {
		time.Sleep(100 * time.Millisecond)
		l.kill()
		time.Sleep(50 * time.Millisecond)
		l.start()
		if got := l.state("counter"); got.Phase != PhaseRunning || got.PID != before.PID || got.StartTime != before.StartTime {
			t.Fatalf("after the death of the keeper the container is %+v, before %+v", got, before)
		}
	}
	if got := l.state("ended"); got.Phase != PhaseExited || got.ExitCode != 3 || !got.CodeKnown {
		t.Errorf("the exit of before is %+v", got)
	}
	was := l.wantCounted("counter", 3*readSize/2)
	l.until("the counter goes on", func() bool { return l.wantCounted("counter", 3*readSize/2) > was+1000 })
	if _, err := input.WriteString("this\n"); err != nil {
		t.Error(err)
	}
	_ = input.Close()
	reaped := make(chan error, 1)
	go func() {
		_, err := unix.Wait4(quiet.PID, nil, 0, nil)
		reaped <- err
	}()
	got := l.exit("quiet")
	if got.PID != quiet.PID || got.CodeKnown != keepsExitCodes(t) || got.CodeKnown && got.ExitCode != 5 {
		t.Errorf("the exit is %+v", got)
	}
	if err := <-reaped; err != nil {
		t.Error(err)
	}
	l.wantLog("quiet", "stdout F got this")
	// A container that ends while there is no keeper.
	l.kill()
	if err := unix.Kill(before.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Wait4(before.PID, nil, 0, nil); err != nil {
		t.Fatal(err)
	}
	l.start()
	if got := l.exit("counter"); got.CodeKnown {
		t.Errorf("the exit that no keeper saw is %+v", got)
	}
}

// keepsExitCodes reports whether the kernel has the exit codes of reaped processes.
func keepsExitCodes(t *testing.T) bool {
	t.Helper()
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		t.Fatal(err)
	}
	var major, minor int
	if _, err := fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor); err != nil {
		t.Fatal(err)
	}
	return major > 6 || major == 6 && minor >= 15
}

// TestStartInterrupted kills the keeper while the OCI runtime runs.
func TestStartInterrupted(t *testing.T) {
	l := newLab(t)
	s := l.container("half", "true", func(b *bundle, _ *Start) { b.Hang = time.Hour })
	failed := make(chan error, 1)
	go func() {
		_, err := l.Start(context.WithoutCancel(t.Context()), s)
		failed <- err
	}()
	l.until("the container starts", func() bool { return l.state("half").Phase == PhaseStarting })
	l.kill()
	if err := <-failed; !errors.Is(err, ErrUnavailable) {
		t.Errorf("the start ends with %v", err)
	}
	l.start()
	if got := l.state("half"); got.Phase != PhaseInterrupted {
		t.Errorf("the container is %+v", got)
	}
	if err := l.Acknowledge(t.Context(), "half"); err != nil {
		t.Error(err)
	}
	l.run("half", "true")
}

// TestSecondKeeper must not take the containers of the first.
func TestSecondKeeper(t *testing.T) {
	l := newLab(t)
	if k, err := Open(Config{Dir: l.Dir, Log: testLogger(os.Stderr)}); !errors.Is(err, ErrRunning) {
		t.Errorf("a second keeper: %v, %v", k, err)
	}
	l.run("one", "true")
}

// TestUpgrade replaces the program while containers write: nothing is lost.
func TestUpgrade(t *testing.T) {
	l := newLab(t)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	next := filepath.Join(l.dir, "keeper-new")
	if err := os.WriteFile(next, data, 0o700); err != nil {
		t.Fatal(err)
	}
	before := l.run("counter", counter)
	l.run("half", "printf 'a '; read line; printf 'line with %s\n' $line; exit 4", withStdin)
	l.run("terminal", "echo one; read line; echo got $line; exit 6", withTerminal)
	l.run("ended", "exit 3")
	l.exit("ended")
	l.until("the containers write", func() bool { return len(l.log("terminal")) > 0 && len(l.log("counter")) > 1000 })
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	input, err := l.Attach(t.Context(), "half", writer, nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = writer.Close()
	if err := l.Upgrade(t.Context(), openFile(t, "/dev/null")); err == nil {
		t.Error("an upgrade to no program succeeds")
	}
	if hello, err := l.Hello(t.Context()); err != nil || hello.Build != "first" {
		t.Errorf("after an upgrade that failed: %+v, %v", hello, err)
	}
	for range 3 {
		if err := l.Upgrade(t.Context(), openFile(t, next)); err != nil {
			t.Fatal(err)
		}
		hello, err := l.Hello(t.Context())
		if err != nil || hello.Build != "new" || hello.PID != l.process.Process.Pid || hello.Protocol != Protocol {
			t.Errorf("after the upgrade: %+v, %v; the process was %d", hello, err, l.process.Process.Pid)
		}
	}
	if got := l.state("ended"); got.Phase != PhaseExited || got.ExitCode != 3 {
		t.Errorf("the exit of before is %+v", got)
	}
	if _, err := input.WriteString("input\n"); err != nil {
		t.Error(err)
	}
	_ = input.Close()
	if got := l.exit("half"); got.ExitCode != 4 || !got.CodeKnown {
		t.Errorf("the exit is %+v", got)
	}
	l.wantLog("half", "stdout F a line with input")
	out := make([]byte, 100)
	if n, err := reader.Read(out); err != nil || !strings.HasSuffix("a line with input\n", string(out[:n])) {
		t.Errorf("the attached client gets %q, %v", out[:n], err)
	}
	if got := l.state("counter"); got.PID != before.PID {
		t.Errorf("the counter is %+v", got)
	}
	was := l.wantCounted("counter", 0)
	l.until("the counter goes on", func() bool { return l.wantCounted("counter", 0) > was+1000 })
	if err := unix.Kill(before.PID, unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := l.exit("counter"); got.ExitCode != 143 || !got.CodeKnown {
		t.Errorf("the exit of the counter is %+v", got)
	}
	master, err := l.Attach(t.Context(), "terminal", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := master.WriteString("more\n"); err != nil {
		t.Error(err)
	}
	_ = master.Close()
	if got := l.exit("terminal"); got.ExitCode != 6 || !got.CodeKnown {
		t.Errorf("the exit of the container with a terminal is %+v", got)
	}
	l.wantLog("terminal", "stdout F one", "stdout F more", "stdout F got more")
}

func openFile(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func TestAttach(t *testing.T) {
	l := newLab(t)
	l.run("echo", "while read line; do echo out $line; echo err $line >&2; done; echo end", withStdin)
	outReader, outWriter, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	errReader, errWriter, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	input, err := l.Attach(t.Context(), "echo", outWriter, errWriter)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = outWriter.Close(), errWriter.Close()
	if _, err := input.WriteString("1\n2\n"); err != nil {
		t.Fatal(err)
	}
	if err := input.Close(); err != nil {
		t.Fatal(err)
	}
	if err := l.CloseStdin(t.Context(), "echo"); err != nil {
		t.Fatal(err)
	}
	// The end of the input ends the container, whose end closes the outputs.
	for reader, want := range map[*os.File]string{outReader: "out 1\nout 2\nend\n", errReader: "err 1\nerr 2\n"} {
		if got := readAll(t, reader); got != want {
			t.Errorf("the client gets %q, want %q", got, want)
		}
	}
	l.exit("echo")
	if _, err := l.Attach(t.Context(), "echo", nil, nil); !errors.Is(err, ErrNotRunning) {
		t.Errorf("attach after the end: %v", err)
	}
}

// TestSlowClient loses output and gets a notice; the container and its log do not wait.
func TestSlowClient(t *testing.T) {
	l := newLab(t)
	l.run("fast", "read line; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); echo $i; done; read line; echo end", withStdin)
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	input, err := l.Attach(t.Context(), "fast", writer, nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = writer.Close()
	defer func() { _ = input.Close() }()
	if _, err := input.WriteString("go\n"); err != nil {
		t.Fatal(err)
	}
	l.until("the log has all", func() bool { return len(l.log("fast")) == 20000 })
	l.wantCounted("fast", 0)
	// The client reads on: it gets what fitted, the notice, and the rest.
	beginning := make([]byte, 1<<16)
	if n, err := reader.Read(beginning); err != nil || n == 0 {
		t.Fatal(n, err)
	}
	if _, err := input.WriteString("go\n"); err != nil {
		t.Fatal(err)
	}
	rest := readAll(t, reader)
	if !strings.Contains(rest, "bytes of output lost") || !strings.HasSuffix(rest, "end\n") {
		t.Errorf("the slow client gets ...%q", rest[max(0, len(rest)-200):])
	}
}

func readAll(t *testing.T, f *os.File) string {
	t.Helper()
	if err := f.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if _, err := f.WriteTo(&out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestTerminal(t *testing.T) {
	l := newLab(t)
	l.run("shell", "read line; stty size; echo got $line", withTerminal)
	if err := l.Resize(t.Context(), "shell", oci.Size{Width: 101, Height: 33}); err != nil {
		t.Fatal(err)
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	master, err := l.Attach(t.Context(), "shell", writer, writer)
	if err != nil {
		t.Fatal(err)
	}
	_ = writer.Close()
	if _, err := master.WriteString("typed\n"); err != nil {
		t.Fatal(err)
	}
	_ = master.Close()
	if got := readAll(t, reader); !strings.Contains(got, "33 101\r\n") || !strings.Contains(got, "got typed\r\n") {
		t.Errorf("the client gets %q", got)
	}
	l.exit("shell")
	l.wantLog("shell", "stdout F typed", "stdout F 33 101", "stdout F got typed")
	l.run("plain", "read line", withStdin)
	if err := l.Resize(t.Context(), "plain", oci.Size{}); !errors.Is(err, ErrInvalid) {
		t.Errorf("resize without a terminal: %v", err)
	}
}

// TestOutputKeptOpen has a process outside of the container with its standard output: the
// exit does not wait for it.
func TestOutputKeptOpen(t *testing.T) {
	l := newLab(t)
	l.run("daemon", "(sleep 1000 &); echo done; exit 9")
	if got := l.exit("daemon"); got.ExitCode != 9 || time.Duration(got.FinishedAt-got.StartedAt) > 10*time.Second {
		t.Errorf("the exit is %+v", got)
	}
	l.wantLog("daemon", "stdout F done")
	if err := l.Acknowledge(t.Context(), "daemon"); err != nil {
		t.Error(err)
	}
}

// TestFullLog drops output, counts it and drains the container.
func TestFullLog(t *testing.T) {
	l := newLab(t)
	l.run("full", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); echo $i; done", func(_ *bundle, s *Start) { s.LogPath = "/dev/full" })
	if got := l.exit("full"); got.ExitCode != 0 || got.Dropped < 20000*40 {
		t.Errorf("the exit is %+v", got)
	}
}

func TestReopen(t *testing.T) {
	l := newLab(t)
	l.run("counter", counter)
	path := filepath.Join(l.dir, "logs", "counter")
	var whole strings.Builder
	for i := range 5 {
		time.Sleep(20 * time.Millisecond)
		rotated := path + "." + strconv.Itoa(i)
		if err := os.Rename(path, rotated); err != nil {
			t.Fatal(err)
		}
		if err := l.Reopen(t.Context(), "counter"); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(rotated)
		if err != nil {
			t.Fatal(err)
		}
		whole.Write(data)
	}
	if err := os.WriteFile(filepath.Join(l.dir, "logs", "whole"), []byte(whole.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if l.wantCounted("whole", 0) < 100 {
		t.Error("the log has almost nothing")
	}
}

// TestRequests sends what is no request.
func TestRequests(t *testing.T) {
	l := newLab(t)
	for _, text := range []string{"", "{", `{"op":"none"}`, `{"op":"start"}`, `{"op":"attach","id":"x","stdout":true}`, `{"op":"upgrade"}`, strings.Repeat("x", maxRequest+1)} {
		conn, err := l.dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		r, fds, err := receive(conn, make([]byte, maxPacket))
		if err != nil || r.err() == nil || len(fds) > 0 {
			t.Errorf("the answer to %.40q is %+v, %v", text, r, err)
		}
		_ = conn.Close()
	}
	if _, err := l.Hello(t.Context()); err != nil {
		t.Error(err)
	}
}
func testLogger(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

// TestDescriptors has containers of each kind: the keeper keeps no descriptor of those that are
// acknowledged.
func TestDescriptors(t *testing.T) {
	l := newLab(t)
	count := func() int {
		open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", l.process.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		return len(open)
	}
	round := func() {
		for id, change := range map[string]func(*bundle, *Start){
			"plain": func(*bundle, *Start) {}, "stdin": withStdin, "terminal": withTerminal,
			"failing": func(b *bundle, _ *Start) { b.Fail = 1 },
		} {
			if _, err := l.Start(t.Context(), l.container(id, "read line", change)); (err != nil) != (id == "failing") {
				t.Fatal(id, err)
			}
			if id == "failing" {
				continue
			}
			if id != "plain" { // whose input is empty
				input, err := l.Attach(t.Context(), id, nil, nil)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := input.WriteString("line\n"); err != nil {
					t.Fatal(err)
				}
				_ = input.Close()
			}
			l.exit(id)
			if err := l.Acknowledge(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
	}
	round()
	was := count()
	for range 5 {
		round()
	}
	// Connections are closed after their responses.
	l.until("the keeper has closed what it has opened", func() bool { return count() <= was })
}

// TestAcknowledgeAtOnce acknowledges containers as soon as they are listed as exited. The keeper
// has written their records by then: a write that comes later would be to a directory that is
// being removed.
func TestAcknowledgeAtOnce(t *testing.T) {
	l := newLab(t)
	const containers = 50
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- func() error {
			for left := containers; left > 0; {
				all, err := l.List(ctx)
				if err != nil {
					return err
				}
				for _, c := range all {
					if c.Phase != PhaseExited {
						continue
					}
					if err := l.Acknowledge(ctx, c.ID); err != nil {
						return err
					}
					left--
				}
			}
			return nil
		}()
	}()
	for i := range containers {
		l.run("c"+strconv.Itoa(i), "true")
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if dirs, err := os.ReadDir(filepath.Join(l.Dir, "containers")); err != nil || len(dirs) > 0 {
		t.Fatalf("acknowledged containers have left %v (%v)", dirs, err)
	}
	l.kill()
	if strings.Contains(l.messages.String(), "cannot write record") {
		t.Error("the keeper has written the record of a container that was acknowledged")
	}
}
