package plan

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

// steady is a pod in which everything is as it should be, with some history.
func steady() Input {
	return Input{
		Pod: basePod(inits("i")),
		Observed: observed(
			ready("s0", 0), exited("i0", "i", 0),
			running("a1", "a", count(1)), exited("a0", "a", 1), running("b0", "b"),
		),
		Now:  now,
		Hash: func(c *v1.Container) string { return c.Image },
	}
}

func TestSteadyAllocations(t *testing.T) {
	in := steady()
	if a := Sync(in); !a.Idle() {
		t.Fatalf("not steady: %+v", a)
	}
	if n := testing.AllocsPerRun(100, func() { Sync(in) }); n > 0 {
		t.Errorf("Sync of a steady pod allocates %v times, want none", n)
	}
}

func BenchmarkSyncSteady(b *testing.B) {
	in := steady()
	b.ReportAllocs()
	for b.Loop() {
		Sync(in)
	}
}

func BenchmarkSyncCrashLoop(b *testing.B) {
	in := steady()
	in.Observed = observed(ready("s0", 0), exited("a1", "a", 1, count(1), backoff(first)), running("b0", "b"))
	b.ReportAllocs()
	for b.Loop() {
		Sync(in)
	}
}

func BenchmarkSyncNew(b *testing.B) {
	in := steady()
	in.Observed = observed()
	b.ReportAllocs()
	for b.Loop() {
		Sync(in)
	}
}

func BenchmarkTerminate(b *testing.B) {
	in := steady()
	b.ReportAllocs()
	for b.Loop() {
		Terminate(in.Pod, in.Observed)
	}
}
