package bench

import (
	"strings"
	"testing"
	"time"
)

// boardText is what sampleScript prints on a board with one pod.
const boardText = `== uptime
100.50 180.25
== stat
cpu  600 0 900 18000 25 0 7 0 0 0
cpu0 300 0 450 9000 20 0 4 0 0 0
cpu1 300 0 450 9000 5 0 3 0 0 0
intr 1 2 3
ctxt 42
== processes
1 (init) S 0 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 1 1000 1
2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 3 0 0 20 0 1 0 1 0 0
15 (kworker/0:1-ev) I 2 0 0 0 -1 69238880 0 0 0 0 0 40 0 0 20 0 1 0 1 0 0
300 (containerd) S 290 1 1 0 -1 1 0 0 0 0 100 50 0 0 20 0 9 0 1 1 1
310 (stock-kubelet) S 305 1 1 0 -1 1 0 0 0 0 1000 250 900 900 20 0 9 0 1 1 1
400 (containerd-shim) S 1 1 1 0 -1 1 0 0 0 0 10 5 0 0 20 0 9 0 1 1 1
410 (sh) S 400 1 1 0 -1 1 0 0 0 0 1 2 0 0 20 0 9 0 1 1 1
411 (a (b) c) S 410 1 1 0 -1 1 0 0 0 0 0 1 0 0 20 0 9 0 1 1 1
== memory
1/status:VmRSS:	    1000 kB
1/status:RssAnon:	     200 kB
310/status:VmRSS:	   81000 kB
310/status:RssAnon:	   23000 kB
400/status:RssAnon:	    5000 kB
410/status:RssAnon:	      50 kB
999/status:RssAnon:	      50 kB
== meminfo
MemAvailable:     300000 kB
== wire
5000
7000
== disk
  100 0 2000 30 50 0 800 20 0 60 50 3 0 9999 0 0 0
`

func parsed(t *testing.T, text string) *sample {
	t.Helper()
	s, err := parseSample(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestParseSample(t *testing.T) {
	s := parsed(t, boardText)
	if s.at != 100500*time.Millisecond || s.cpus != 2 || s.idle != 180250*time.Millisecond {
		t.Errorf("at %v, %d processors, idle %v", s.at, s.cpus, s.idle)
	}
	if s.available != 300000<<10 || s.received != 5000 || s.sent != 7000 || s.written != 800*512 {
		t.Errorf("available %d, received %d, sent %d, written %d", s.available, s.received, s.sent, s.written)
	}
	want := process{name: "stock-kubelet", parent: 305, cpu: 12500 * time.Millisecond, reaped: 18 * time.Second, rss: 81000 << 10, anon: 23000 << 10}
	if got := s.processes[310]; got != want {
		t.Errorf("the kubelet is %+v, want %+v", got, want)
	}
	if p := s.processes[411]; p.name != "a (b) c" || p.parent != 410 || p.cpu != 10*time.Millisecond {
		t.Errorf("a name with parentheses: %+v", p)
	}
	if _, ok := s.processes[999]; ok {
		t.Error("a process that only memory knows is there")
	}
}

func TestParseSampleRefuses(t *testing.T) {
	for name, change := range map[string][2]string{
		"a part is missing":      {"== wire\n5000\n7000\n", ""},
		"a counter is missing":   {"5000\n7000", "5000"},
		"a counter is no number": {"5000\n7000", "5000\nx"},
		"no processors":          {"cpu0 300 0 450 9000 20 0 4 0 0 0\ncpu1 300 0 450 9000 5 0 3 0 0 0\n", ""},
		"a process without name": {"1 (init) S", "1 init S"},
		"a short process":        {"411 (a (b) c) S 410 1 1 0 -1 1 0 0 0 0 0 1 0 0 20 0 9 0 1 1 1", "411 (a) S 410"},
		"memory in no unit":      {"81000 kB", "81000"},
		"memory of no process":   {"310/status:VmRSS", "self/status:VmRSS"},
		"a short disk":           {"  100 0 2000 30 50 0 800 20 0 60 50 3 0 9999 0 0 0", "100 0"},
		"a disk never written":   {" 800 20 0 60", " 0 20 0 60"},
		"no time":                {"100.50 180.25", "soon"},
		"idle is no number":      {"cpu  600 0 900 18000", "cpu  600 0 900 x"},
	} {
		text := strings.Replace(boardText, change[0], change[1], 1)
		if text == boardText {
			t.Fatalf("%s: nothing is changed", name)
		}
		if _, err := parseSample(text); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
