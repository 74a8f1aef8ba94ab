package fake_test

import (
	"context"
	"errors"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/fake"
)

// sleeper starts a container that sleeps.
func sleeper(t *testing.T, rt *fake.Runtime) string {
	t.Helper()
	rt.AddImage("app", fake.Program{})
	sandbox := &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "p", Namespace: "n", Uid: "u"}}
	sid, err := rt.RunPodSandbox(t.Context(), sandbox, "")
	if err != nil {
		t.Fatal(err)
	}
	id, err := rt.CreateContainer(t.Context(), sid, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, Image: &runtimeapi.ImageSpec{Image: "app"},
	}, sandbox)
	if err != nil {
		t.Fatal(err)
	}
	if err := rt.StartContainer(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	return id
}

func TestExec(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, rt *fake.Runtime) {
		id := sleeper(t, rt)
		started := ""
		rt.SetExec("/hook", fake.Exec{Delay: time.Minute, Stdout: "ok", Stderr: "hm", Code: 3, Effect: func(id string) { started = id }})
		rt.SetExec("/invalid", fake.Exec{Err: errors.New("no such file")})
		rt.SetExec("/hang", fake.Exec{Hang: true})
		begun := time.Now()
		out, errs, code, err := rt.ExecSync(t.Context(), id, []string{"/hook"}, time.Hour)
		if string(out) != "ok" || string(errs) != "hm" || code != 3 || err != nil || started != id || time.Since(begun) != time.Minute {
			t.Errorf("hook: %q, %q, %d, %v after %v", out, errs, code, err, time.Since(begun))
		}
		if _, _, _, err := rt.ExecSync(t.Context(), id, []string{"/invalid"}, time.Hour); err == nil {
			t.Error("an invalid command ran")
		}
		begun = time.Now()
		if _, _, _, err := rt.ExecSync(t.Context(), id, []string{"/hang"}, 5*time.Second); !errors.Is(err, container.ErrTimeout) || time.Since(begun) != 5*time.Second {
			t.Errorf("a command that hangs: %v after %v", err, time.Since(begun))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, _, err := rt.ExecSync(ctx, id, []string{"/hang"}, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the caller's end: %v", err)
		}
		time.AfterFunc(time.Second, func() { rt.ExitContainer(id, 0) })
		if _, _, code, err := rt.ExecSync(t.Context(), id, []string{"/hang"}, 0); code != 137 || err != nil {
			t.Errorf("the container's end: %d, %v", code, err)
		}
	})
}

func TestExecFiles(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, rt *fake.Runtime) {
		id := sleeper(t, rt)
		run := func(want int32, script string) string {
			t.Helper()
			out, _, code, err := rt.ExecSync(t.Context(), id, []string{"sh", "-c", script}, time.Minute)
			if err != nil || code != want {
				t.Errorf("%s: code %d, %v, want %d", script, code, err, want)
			}
			return string(out)
		}
		run(1, "cat /tmp/health")
		run(0, "echo well > /tmp/health")
		if out := run(0, "cat /tmp/health"); out != "well\n" {
			t.Errorf("the file holds %q", out)
		}
		run(0, "rm -f /tmp/health")
		run(1, "test -e /tmp/health")
		run(0, "echo new >/tmp/health; test -e /tmp/health")
		run(127, "curl x")
		run(4, "touch /x; exit 4; rm /x")
		run(0, "test -e /x")
	})
}

func TestExecFaults(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, rt *fake.Runtime) {
		id := sleeper(t, rt)
		rt.SetExec("/hang", fake.Exec{Hang: true})
		remove := rt.Inject("ExecSync", fake.Fault{Err: errors.New("broken")})
		if _, _, _, err := rt.ExecSync(t.Context(), id, []string{"true"}, 0); err == nil {
			t.Error("no fault")
		}
		remove()
		time.AfterFunc(time.Second, rt.Stop)
		if _, _, _, err := rt.ExecSync(t.Context(), id, []string{"/hang"}, time.Minute); !errors.Is(err, container.ErrUnavailable) {
			t.Errorf("a runtime that stops: %v", err)
		}
		rt.Start()
		rt.Hang()
		begun := time.Now()
		if _, _, _, err := rt.ExecSync(t.Context(), id, []string{"true"}, 10*time.Second); !errors.Is(err, container.ErrTimeout) || time.Since(begun) != 2*time.Minute+10*time.Second {
			t.Errorf("a runtime that hangs: %v after %v", err, time.Since(begun))
		}
	})
}
