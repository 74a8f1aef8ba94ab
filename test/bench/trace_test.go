package bench

import "testing"

func TestTraces(t *testing.T) {
	const log = `supervise: tinylet starts
time=2026-11-25T20:00:00.000Z level=INFO msg="pod update" op=ADD pod=default/cold-1-board podUID=u1 source=file
time=2026-11-25T20:00:00.100Z level=INFO msg="pod update" op=ADD pod=default/cold-0-board podUID=u0 source=file
time=2026-11-25T20:00:00.100Z level=INFO msg="pod update" op=ADD pod=default/warm-0-board podUID=u9 source=file
time=2026-11-25T20:00:02.000Z level=DEBUG msg="called the container runtime" call=RunPodSandbox took=1.5s podUID=u0 sandboxID=s0
time=2026-11-25T20:00:03.000Z level=DEBUG msg="called the container runtime" call=RunPodSandbox took=2s podUID=u1 sandboxID=s1
time=2026-11-25T20:00:03.100Z level=DEBUG msg="called the container runtime" call=CreateContainer took=500ms sandboxID=s0 containerID=c0
time=2026-11-25T20:00:04.000Z level=DEBUG msg="called the container runtime" call=StartContainer took=250ms containerID=c0
time=2026-11-25T20:00:04.000Z level=DEBUG msg="called the container runtime" call=StartContainer took=250ms containerID=c9
`
	traces, err := parseTraces(log, "cold-")
	if err != nil {
		t.Fatal(err)
	}
	const want = `| pod | sandbox asked for after | sandbox | until create | create | start | started after |
|---|---:|---:|---:|---:|---:|---:|
| cold-0-board | 0.50 s | 1.50 s | 0.60 s | 0.50 s | 0.25 s | 4.00 s |
| cold-1-board | 1.00 s | 2.00 s | – | – | – | – |
`
	if got := traceTable(traces); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if _, err := parseTraces("time=2026-11-25T20:00:00.000Z call=Status took=long", ""); err == nil {
		t.Error("a call that took no time is read")
	}
}
