package fake_test

import (
	"testing"

	"github.com/tinylet/tinylet/agent/container/conformance"
	"github.com/tinylet/tinylet/agent/container/fake"
)

func TestConformance(t *testing.T) {
	conformance.Run(t, func(t *testing.T) conformance.Env {
		rt := fake.New(fake.Config{WriteLogs: true})
		rt.AddImage("localhost/busybox:1", fake.Program{})
		rt.AddImage("localhost/spare:1", fake.Program{})
		stop, err := rt.ServeStreams()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(stop)
		return conformance.Env{
			Runtime:   rt,
			Image:     "localhost/busybox:1",
			Absent:    "localhost/absent:1",
			Removable: "localhost/spare:1",
			LogRoot:   t.TempDir(),

			Parallel: true,
			Restart:  func(*testing.T) { rt.Restart() },
		}
	})
}
