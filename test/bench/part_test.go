package bench

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestPartOf(t *testing.T) {
	s := parsed(t, boardText)
	for pid, want := range map[int]part{
		1: partOther, 2: partKernel, 15: partKernel, 300: partContainerd, 310: partAgent, 400: partShims, 410: partPods, 411: partPods,
	} {
		if got := s.partOf(pid, "stock-kubelet"); got != want {
			t.Errorf("process %d is of part %d, want %d", pid, got, want)
		}
	}
	if rss, anon := s.memory("stock-kubelet", partAgent); rss != 81000<<10 || anon != 23000<<10 {
		t.Errorf("the agent has %d, %d", rss, anon)
	}
	if _, anon := s.memory("stock-kubelet", partPods); anon != 50<<10 {
		t.Errorf("pods have %d", anon)
	}
}

// later is boardText after a minute.
var later = strings.NewReplacer(
	"100.50 180.25", "160.50 290.00",
	"cpu  600 0 900 18000 25", "cpu  900 0 1200 28000 25", // 100 s of 120 s idle
	"0 0 0 1000 250 900 900", "0 0 0 1200 350 900 900", // the kubelet: 3 s
	"0 0 0 100 50 0 0", "0 0 0 150 60 0 0", // containerd: 0.6 s
	"== memory", "500 (containerd-shim) S 1 1 1 0 -1 1 0 0 0 0 20 10 0 0 20 0 9 0 1 1 1\n== memory", // a new one: 0.3 s
	"5000\n7000", "35000\n17000",
	" 800 20 0", " 1000 20 0",
).Replace(boardText)

func TestWindow(t *testing.T) {
	before, after := parsed(t, boardText), parsed(t, later)
	w, err := after.since(before, "stock-kubelet")
	if err != nil {
		t.Fatal(err)
	}
	want := window{took: time.Minute, busy: 20 * time.Second, received: 30000, sent: 10000, written: 200 * 512}
	want.cpu[partAgent] = 3 * time.Second
	want.cpu[partContainerd] = 600 * time.Millisecond
	want.cpu[partShims] = 300 * time.Millisecond
	if w != want {
		t.Errorf("got  %+v\nwant %+v", w, want)
	}
	if got := w.perSecond(3 * time.Second); got != 50 {
		t.Errorf("3 s in a minute are %v ms/s", got)
	}
	if got := w.perHour(1000); math.Abs(got-60000) > 1e-6 {
		t.Errorf("1000 bytes in a minute are %v in an hour", got)
	}
}

func TestWindowRefuses(t *testing.T) {
	before := parsed(t, boardText)
	for name, text := range map[string]string{
		"the agent is another process": strings.Replace(strings.Replace(later, "310 (stock", "777 (stock", 1), "310/status", "777/status", -1),
		"the agent is gone":            strings.Replace(later, "(stock-kubelet)", "(other)", 1),
		"two agents":                   strings.Replace(later, "411 (a (b) c)", "411 (stock-kubelet)", 1),
		"no time has passed":           boardText,
	} {
		if _, err := parsed(t, text).since(before, "stock-kubelet"); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
