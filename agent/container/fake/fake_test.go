package fake_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/fake"
)

func bubble(t *testing.T, c fake.Config, test func(t *testing.T, rt *fake.Runtime)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(c)
		rt.AddImage("app", fake.Program{})
		test(t, rt)
	})
}

func config(uid string) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Uid: uid, Name: uid, Namespace: "default"}}
}

func run(t *testing.T, rt *fake.Runtime, uid string) (sandboxID string) {
	t.Helper()
	id, err := rt.RunPodSandbox(t.Context(), config(uid), "")
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func create(t *testing.T, rt *fake.Runtime, sandboxID, uid string, argv ...string) string {
	t.Helper()
	id, err := rt.CreateContainer(t.Context(), sandboxID, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "main"},
		Image:    &runtimeapi.ImageSpec{Image: "app"},
		Command:  argv,
	}, config(uid))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func start(t *testing.T, rt *fake.Runtime, uid string, argv ...string) (containerID string) {
	t.Helper()
	id := create(t, rt, run(t, rt, uid), uid, argv...)
	if err := rt.StartContainer(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	return id
}

func state(t *testing.T, rt *fake.Runtime, containerID string) string {
	t.Helper()
	for _, s := range rt.AllContainers() {
		if s.GetId() == containerID {
			return fmt.Sprintf("%v %d %s", s.GetState(), s.GetExitCode(), s.GetReason())
		}
	}
	return "absent"
}

func wantState(t *testing.T, rt *fake.Runtime, containerID, want string) {
	t.Helper()
	if got := state(t, rt, containerID); got != want {
		t.Errorf("container is %q, want %q", got, want)
	}
}

const (
	running = "CONTAINER_RUNNING 0 "
	exited  = "CONTAINER_EXITED "
)

func TestPrograms(t *testing.T) {
	tests := []struct {
		name  string
		argv  []string
		after time.Duration
		want  string
	}{
		{"the image's own", nil, time.Hour, running},
		{"true", []string{"true"}, 0, exited + "0 Completed"},
		{"false", []string{"/bin/false"}, 0, exited + "1 Error"},
		{"sleep, before", []string{"sleep", "10"}, 9 * time.Second, running},
		{"sleep, after", []string{"sleep", "10"}, 10 * time.Second, exited + "0 Completed"},
		{"sleep for ever", []string{"sleep", "infinity"}, 1000 * time.Hour, running},
		{"script, before", []string{"sh", "-c", "sleep 5; exit 3"}, 4 * time.Second, running},
		{"script, after", []string{"sh", "-c", "sleep 5; exit 3"}, 5 * time.Second, exited + "3 Error"},
		{"script that cannot be", []string{"/bin/sh", "-c", "frobnicate"}, 0, exited + "127 Error"},
		{"own program", []string{"/own"}, time.Minute, exited + "9 Error"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, fake.Config{}, func(t *testing.T, rt *fake.Runtime) {
				rt.SetProgram("/own", fake.Program{Ends: true, After: time.Minute, Code: 9})
				id := start(t, rt, "a", tt.argv...)
				time.Sleep(tt.after)
				synctest.Wait()
				wantState(t, rt, id, tt.want)
			})
		})
	}
}

func TestStopSignal(t *testing.T) {
	tests := []struct {
		name string
		p    fake.Program
		took time.Duration
		want string
	}{
		{"at once", fake.Program{}, 0, exited + "143 Error"},
		{"with its own code", fake.Program{TermCode: 7}, 0, exited + "7 Error"},
		{"ignored", fake.Program{IgnoreTerm: true}, 10 * time.Second, exited + "137 Error"},
		{"ends by itself meanwhile", fake.Program{IgnoreTerm: true, Ends: true, After: 3 * time.Second}, 3 * time.Second, exited + "0 Completed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, fake.Config{}, func(t *testing.T, rt *fake.Runtime) {
				rt.SetProgram("/own", tt.p)
				id := start(t, rt, "a", "/own")
				begun := time.Now()
				if err := rt.StopContainer(t.Context(), id, 10*time.Second); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(begun); took != tt.took {
					t.Errorf("the stop took %v, want %v", took, tt.took)
				}
				wantState(t, rt, id, tt.want)
				time.Sleep(time.Hour) // no timer of the process is left to change it
				wantState(t, rt, id, tt.want)
			})
		})
	}
}

func TestTheTestsWish(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, rt *fake.Runtime) {
		a, b := start(t, rt, "a"), start(t, rt, "b")
		if got := rt.RunningContainer("a", "main"); got != a {
			t.Errorf("the running container is %q, want %q", got, a)
		}
		if !rt.ExitContainer(a, 5) || !rt.OOMKill(b) {
			t.Error("running containers could not be ended")
		}
		if rt.ExitContainer(a, 6) || rt.OOMKill("nobody") {
			t.Error("what does not run was ended")
		}
		wantState(t, rt, a, exited+"5 Error")
		wantState(t, rt, b, exited+"137 OOMKilled")
		if got := rt.RunningContainer("a", "main"); got != "" {
			t.Errorf("after its end the container %q runs", got)
		}
	})
}

func TestFaults(t *testing.T) {
	broken := errors.New("broken")
	bubble(t, fake.Config{}, func(t *testing.T, rt *fake.Runtime) {
		id := create(t, rt, run(t, rt, "a"), "a")

		remove := rt.Inject("StartContainer", fake.Fault{Err: broken})
		if err := rt.StartContainer(t.Context(), id); !errors.Is(err, broken) {
			t.Errorf("the fault did not strike: %v", err)
		}
		wantState(t, rt, id, "CONTAINER_CREATED 0 ")
		remove()

		rt.Inject("StartContainer", fake.Fault{Err: container.ErrTimeout, Late: true, Times: 1})
		if err := rt.StartContainer(t.Context(), id); !errors.Is(err, container.ErrTimeout) {
			t.Errorf("the answer was not lost: %v", err)
		}
		wantState(t, rt, id, running)

		rt.Inject("ContainerStatus", fake.Fault{Err: broken, Skip: 2, Times: 2})
		for call, fails := range []bool{false, false, true, true, false} {
			if _, err := rt.ContainerStatus(t.Context(), id); (err != nil) != fails {
				t.Errorf("call %d: %v", call, err)
			}
		}

		rt.Inject("ContainerStatus", fake.Fault{Err: broken, Match: func(subject string) bool { return subject == id }})
		if _, err := rt.ContainerStatus(t.Context(), id); !errors.Is(err, broken) {
			t.Errorf("the fault did not match: %v", err)
		}
		if _, err := rt.ContainerStatus(t.Context(), "other"); !errors.Is(err, container.ErrNotFound) {
			t.Errorf("the fault matched another: %v", err)
		}

		rt.Inject("Version", fake.Fault{Delay: time.Minute})
		begun := time.Now()
		if _, err := rt.Version(t.Context()); err != nil || time.Since(begun) != time.Minute {
			t.Errorf("the delayed call took %v: %v", time.Since(begun), err)
		}
	})
}

func TestHang(t *testing.T) {
	for name, hang := range map[string]func(*fake.Runtime){
		"one method":  func(rt *fake.Runtime) { rt.Inject("Status", fake.Fault{Hang: true}) },
		"all methods": func(rt *fake.Runtime) { rt.Inject("*", fake.Fault{Hang: true}) },
		"the runtime": (*fake.Runtime).Hang,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, fake.Config{Timeout: time.Minute}, func(t *testing.T, rt *fake.Runtime) {
				hang(rt)
				begun := time.Now()
				_, err := rt.Status(t.Context())
				if !errors.Is(err, container.ErrTimeout) || errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("the limit's end: %v", err)
				}
				if took := time.Since(begun); took != time.Minute {
					t.Errorf("the call took %v, want the limit", took)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if _, err := rt.Status(ctx); !errors.Is(err, container.ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("the caller's deadline: %v", err)
				}
				ctx, cancel = context.WithCancel(t.Context())
				time.AfterFunc(time.Second, cancel)
				if _, err := rt.Status(ctx); !errors.Is(err, context.Canceled) || errors.Is(err, container.ErrTimeout) {
					t.Errorf("the caller's wish: %v", err)
				}
			})
		})
	}
}

func TestResumeAnswers(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, rt *fake.Runtime) {
		rt.Hang()
		time.AfterFunc(30*time.Second, rt.Resume)
		begun := time.Now()
		run(t, rt, "a")
		if took := time.Since(begun); took != 30*time.Second {
			t.Errorf("the answer came after %v", took)
		}
	})
}

func TestOutages(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, rt *fake.Runtime) {
		stays, ends := start(t, rt, "stays"), start(t, rt, "ends")
		rt.Stop()
		if _, err := rt.Version(t.Context()); !errors.Is(err, container.ErrUnavailable) {
			t.Errorf("a stopped runtime: %v", err)
		}
		rt.ExitContainer(ends, 0)
		rt.Start()
		wantState(t, rt, stays, running)
		wantState(t, rt, ends, exited+"255 Unknown")
		if len(rt.AllSandboxes()) != 2 {
			t.Error("the sandboxes are gone")
		}

		created := create(t, rt, run(t, rt, "created"), "created")
		rt.Reboot()
		wantState(t, rt, stays, exited+"255 Unknown")
		wantState(t, rt, created, "CONTAINER_CREATED 0 ")
		for _, s := range rt.AllSandboxes() {
			if s.GetState() != runtimeapi.PodSandboxState_SANDBOX_NOTREADY || s.GetNetwork().GetIp() != "" {
				t.Errorf("after the reboot sandbox %s is %v with address %q", s.GetId(), s.GetState(), s.GetNetwork().GetIp())
			}
		}
	})
}

// TestRestartLosesAnswers checks that a call which a restart interrupts fails with
// ErrUnavailable: it may or may not have taken effect.
func TestRestartLosesAnswers(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, rt *fake.Runtime) {
		rt.SetProgram("/stubborn", fake.Program{IgnoreTerm: true})
		id := start(t, rt, "a", "/stubborn")
		time.AfterFunc(time.Second, rt.Restart)
		if err := rt.StopContainer(t.Context(), id, time.Minute); !errors.Is(err, container.ErrUnavailable) {
			t.Errorf("the interrupted stop: %v", err)
		}
		wantState(t, rt, id, running)

		rt.SetPull("slow", fake.Pull{Delay: time.Minute})
		time.AfterFunc(time.Second, rt.Restart)
		if _, err := rt.PullImage(t.Context(), &runtimeapi.ImageSpec{Image: "slow"}, nil, nil); !errors.Is(err, container.ErrUnavailable) {
			t.Errorf("the interrupted pull: %v", err)
		}
	})
}

func TestStream(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, rt *fake.Runtime) {
		var mu sync.Mutex
		var got []string
		listen := func(ctx context.Context) chan error {
			ended := make(chan error, 1)
			go func() {
				ended <- rt.ContainerEvents(ctx, func() {}, func(e *runtimeapi.ContainerEventResponse) {
					mu.Lock()
					defer mu.Unlock()
					got = append(got, fmt.Sprintf("%s %v %s", e.GetContainerId(), e.GetContainerEventType(), e.GetPodSandboxStatus().GetMetadata().GetUid()))
				})
			}()
			synctest.Wait()
			return ended
		}
		heard := func() int {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			n := len(got)
			got = nil
			return n
		}

		ended := listen(t.Context())
		id := start(t, rt, "a")
		if n := heard(); n != 4 {
			t.Errorf("a start is %d events, want 4", n)
		}
		rt.Hang()
		rt.ExitContainer(id, 0)
		if n := heard(); n != 0 {
			t.Errorf("a hung runtime sent %d events", n)
		}
		rt.Resume()
		if n := heard(); n != 1 {
			t.Errorf("after the hang came %d events, want 1", n)
		}
		rt.Restart()
		if err := <-ended; !errors.Is(err, container.ErrUnavailable) {
			t.Errorf("the restart ended the stream with %v", err)
		}

		start(t, rt, "unheard")
		ctx, cancel := context.WithCancel(t.Context())
		ended = listen(ctx)
		if n := heard(); n != 0 {
			t.Errorf("%d events of the past were replayed", n)
		}
		rt.LoseEvents(3)
		start(t, rt, "b")
		if n := heard(); n != 1 {
			t.Errorf("of four events, of which three are lost, came %d", n)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the cancelled stream ended with %v", err)
		}
		rt.Stop()
		if err := <-listen(t.Context()); !errors.Is(err, container.ErrUnavailable) {
			t.Errorf("a stream from a stopped runtime: %v", err)
		}
	})
}

func TestPull(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, rt *fake.Runtime) {
		spec := &runtimeapi.ImageSpec{Image: "busybox"}
		rt.SetPull("docker.io/library/busybox:latest", fake.Pull{Err: errors.New("busy"), Failures: 2, Delay: time.Minute})
		for try, works := range []bool{false, false, true} {
			begun := time.Now()
			ref, err := rt.PullImage(t.Context(), spec, nil, nil)
			if (err == nil) != works || time.Since(begun) != time.Minute {
				t.Errorf("try %d: %q, %v after %v", try, ref, err, time.Since(begun))
			}
		}
		found, err := rt.ImageStatus(t.Context(), spec)
		if err != nil || found.GetId() == "" {
			t.Errorf("the pulled image is %v, %v", found, err)
		}
		rt.DropImage("busybox:latest")
		if found, err := rt.ImageStatus(t.Context(), spec); found != nil || err != nil {
			t.Errorf("the removed image is %v, %v", found, err)
		}
	})
}

func TestCallLog(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, rt *fake.Runtime) {
		before := time.Now()
		run(t, rt, "a")
		time.Sleep(time.Second)
		_, _ = rt.ContainerStatus(t.Context(), "nobody")
		calls := rt.Calls()
		if len(calls) != 2 || rt.Count("ContainerStatus") != 1 || rt.Count() != 2 || rt.Count("Version") != 0 {
			t.Fatalf("the calls are %v", calls)
		}
		if c := calls[0]; c.Method != "RunPodSandbox" || c.Subject != "default/a" || !c.At.Equal(before) || c.Err != nil {
			t.Errorf("the first call is %+v", c)
		}
		if c := calls[1]; c.Subject != "nobody" || !c.At.Equal(before.Add(time.Second)) || !errors.Is(c.Err, container.ErrNotFound) {
			t.Errorf("the second call is %+v", c)
		}
	})
}

func TestKilledSandbox(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, rt *fake.Runtime) {
		sandboxID := run(t, rt, "a")
		id := create(t, rt, sandboxID, "a")
		if err := rt.StartContainer(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		rt.KillSandbox(sandboxID)
		wantState(t, rt, id, running)
		if s := rt.AllSandboxes()[0]; s.GetState() != runtimeapi.PodSandboxState_SANDBOX_NOTREADY {
			t.Errorf("the killed sandbox is %v", s.GetState())
		}
	})
}
