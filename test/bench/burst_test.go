package bench

import (
	"slices"
	"strings"
	"testing"
	"time"
)

const burstText = `== begin
100.00
== busy
100.00 cpu 600 0 900 1000 100 0 7 0 0 0
101.00 cpu 700 0 950 1020 110 0 7 0 0 0
103.00 cpu 900 0 1000 1100 150 0 7 0 0 0
109.00 cpu 900 0 1000 2200 150 0 7 0 0 0
== ran
2026-11-25T20:00:00.000000000Z stdout F 102.50
2026-11-25T20:00:00.000000000Z stdout F 101.25
`

func TestParseBurst(t *testing.T) {
	b, err := parseBurst(burstText)
	if err != nil {
		t.Fatal(err)
	}
	if want := []time.Duration{1250 * time.Millisecond, 2500 * time.Millisecond}; !slices.Equal(b.ran, want) {
		t.Errorf("ran after %v, want %v", b.ran, want)
	}
	// 1.5 s of two processors' 6 s, until the first reading after the last ran.
	if idle, iowait := b.idleUntil(2); idle != 0.25 || iowait != 0.5/6 {
		t.Errorf("idle %v, waiting for the disk %v", idle, iowait)
	}
}

func TestParseBurstRefuses(t *testing.T) {
	for name, change := range map[string][2]string{
		"no beginning":          {"== begin\n100.00\n", ""},
		"a beginning of words":  {"100.00\n== busy", "soon\n== busy"},
		"a short reading":       {"101.00 cpu 700 0 950 1020 110 0 7 0 0 0", "101.00 cpu 700"},
		"a reading of words":    {"1020 110", "1020 x"},
		"a reading at no time":  {"101.00 cpu", "now cpu"},
		"another line in a log": {"stdout F 101.25", "stdout F cannot run"},
		"a container's words":   {"F 101.25", "F now"},
		"nothing ran":           {burstText[strings.Index(burstText, "== ran"):], ""},
		"text before any part":  {"== begin\n100.00", "100.00\n== begin\n100.00"},
	} {
		text := strings.Replace(burstText, change[0], change[1], 1)
		if text == burstText {
			t.Fatalf("%s: nothing is changed", name)
		}
		if _, err := parseBurst(text); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestWork(t *testing.T) {
	before := parsed(t, boardText)
	after := parsed(t, strings.NewReplacer(
		"150 60 0 0 20", "150 60 30 20 20", // children of containerd: 0.5 s
		"10 5 0 0 20", "10 5 0 40 20", // of a shim: 0.4 s
		"20 10 0 0 20", "20 10 10 0 20", // of a new one: 0.1 s
		"1200 350 900 900", "1200 350 950 900", // of the agent: 0.5 s
	).Replace(later))
	w, err := after.workSince(before, "stock-kubelet")
	if err != nil {
		t.Fatal(err)
	}
	want := work{cpus: 2, busy: 20 * time.Second}
	want.cpu[workAgent] = 3 * time.Second
	want.cpu[workAgentChildren] = 500 * time.Millisecond
	want.cpu[workContainerd] = 600 * time.Millisecond
	want.cpu[workContainerdChildren] = 500 * time.Millisecond
	want.cpu[workShims] = 300 * time.Millisecond
	want.cpu[workShimsChildren] = 500 * time.Millisecond
	want.cpu[workOther] = 20*time.Second - 5400*time.Millisecond
	if w != want {
		t.Errorf("got  %+v\nwant %+v", w, want)
	}
}

func TestBurstReport(t *testing.T) {
	b, err := parseBurst(burstText)
	if err != nil {
		t.Fatal(err)
	}
	b.emulator = 7 * time.Second
	slow := &burst{emulator: b.emulator, ran: []time.Duration{3 * time.Second, 9 * time.Second}, busy: b.busy}
	w := work{cpus: 2, busy: 4 * time.Second}
	w.cpu[workShims] = 2 * time.Second
	text := burstReport([]burstRow{{agent: "tinylet", kind: "cold", bursts: []*burst{b, slow}, works: []work{w, w}}})
	for _, want := range []string{
		"| tinylet, cold | 2 | 1.2 / 2.1 / 3.0 s | 1.9 / 3.9 / 6.0 s | 2.5 / 5.8 / 9.0 s | 7.0 / 7.0 / 7.0 s |",
		"| tinylet, cold | 47 % | 6 % | 4.0 | 0.0 | 0.0 | 0.0 | 0.0 | 2.0 |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}
