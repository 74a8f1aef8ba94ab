package native

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestStopSignal(t *testing.T) {
	for name, want := range map[string]unix.Signal{
		"": unix.SIGTERM, "SIGTERM": unix.SIGTERM, "quit": unix.SIGQUIT, "3": unix.SIGQUIT, "SIGRTMIN+3": 37, "RTMAX-1": 63,
		"SIGNONE": 0, "0": 0, "-1": 0, "65": 0, "RTMIN+99": 0,
	} {
		got, err := stopSignal(name)
		if want == 0 && err == nil || want != 0 && (got != want || err != nil) {
			t.Errorf("%q: %d, %v, want %d", name, got, err, want)
		}
	}
}
