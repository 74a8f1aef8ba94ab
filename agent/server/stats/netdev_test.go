package stats_test

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tinylet/tinylet/agent/server/stats"
)

const netDev = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:    1000      10    0    0    0     0          0         0     1000      10    0    0    0     0       0          0
  eth0: 18446744073709551615 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16
verylongname0:1 2 3 4 0 0 0 0 5 6 7 8 0 0 0 0
`

func TestInterfaces(t *testing.T) {
	want := []stats.Interface{
		{Name: "before"},
		{Name: "eth0", Rx: stats.Traffic{Bytes: math.MaxUint64, Packets: 2, Errors: 3, Dropped: 4}, Tx: stats.Traffic{Bytes: 9, Packets: 10, Errors: 11, Dropped: 12}},
		{Name: "verylongname0", Rx: stats.Traffic{Bytes: 1, Packets: 2, Errors: 3, Dropped: 4}, Tx: stats.Traffic{Bytes: 5, Packets: 6, Errors: 7, Dropped: 8}},
	}
	if diff := cmp.Diff(want, stats.AppendInterfaces([]byte(netDev), []stats.Interface{{Name: "before"}})); diff != "" {
		t.Errorf("interfaces (-want +got):\n%s", diff)
	}
	for name, text := range map[string]string{
		"empty":     "",
		"short":     "eth0: 1 2 3 4 5 6 7 8 9 10 11\n",
		"no name":   ": 1 2 3 4 5 6 7 8 9 10 11 12\n",
		"too large": "eth0: 18446744073709551616 2 3 4 5 6 7 8 9 10 11 12\n",
		"negative":  "eth0: -1 2 3 4 5 6 7 8 9 10 11 12\n",
	} {
		if got := stats.AppendInterfaces([]byte(text), nil); got != nil {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// FuzzInterfaces checks that the result has no interface that is not in the
// input.
func FuzzInterfaces(f *testing.F) {
	f.Add(netDev)
	f.Add("a:1 1 1 1 1 1 1 1 1 1 1 1")
	f.Fuzz(func(t *testing.T, text string) {
		got := stats.AppendInterfaces([]byte(text), nil)
		if len(got) > strings.Count(text, ":") {
			t.Fatalf("%d interfaces of %q", len(got), text)
		}
		for _, i := range got {
			if i.Name == "" || i.Name == "lo" || !strings.Contains(text, i.Name) {
				t.Errorf("interface %q of %q", i.Name, text)
			}
		}
	})
}
