package logrotate

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSortOut(t *testing.T) {
	for _, tc := range []struct {
		name   string
		files  []string
		pieces []string
		unused []string
	}{
		{"nothing", nil, []string{}, nil},
		{"only the log", []string{"0.log"}, []string{}, nil},
		{"by age", []string{"0.log.20260102-000000", "0.log.20260101-000000.gz"}, []string{"0.log.20260101-000000.gz", "0.log.20260102-000000"}, nil},
		{"temporary", []string{"0.log.20260102-000000.tmp", "0.log.20260102-000000"}, []string{"0.log.20260102-000000"}, []string{"0.log.20260102-000000.tmp"}},
		{"compressed already", []string{"0.log.20260102-000000", "0.log.20260102-000000.gz"}, []string{"0.log.20260102-000000.gz"}, []string{"0.log.20260102-000000"}},
		{"of others", []string{"1.log.20260102-000000", "0.log.2026", "0.log.", "0.log.20260102-000000.gz.gz", "0.log.20260102-250000", "0.log.20260102-000000.0"}, []string{}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pieces, unused := classify("0.log", tc.files)
			if diff := cmp.Diff(tc.pieces, names(pieces)); diff != "" {
				t.Errorf("pieces (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.unused, unused); diff != "" {
				t.Errorf("unused (-want +got):\n%s", diff)
			}
		})
	}
}

// For any content of a directory, the next log is the newest and is found again.
func FuzzNextStamp(f *testing.F) {
	f.Add("0.log.20260102-000000", int64(0))
	f.Add("0.log.20991231-235959.gz", int64(1<<33))
	f.Add("0.log.99981231-235959", int64(1<<33))
	f.Add("0.log.00000101-000000.tmp", int64(5))
	f.Fuzz(func(t *testing.T, name string, unix int64) {
		now := time.Unix(unix%(1<<37), 0).UTC()
		if now.Year() < 0 || now.Year() > 9000 {
			return
		}
		pieces, _ := classify("0.log", []string{name})
		stamp := nextStamp(now, pieces)
		if len(pieces) == 1 && stamp <= pieces[0].stamp {
			t.Errorf("%s after %s", stamp, pieces[0].stamp)
		}
		if len(stamp) != len(stampFormat) {
			t.Errorf("stamp %s", stamp)
		}
	})
}

func names(pieces []rotatedFile) []string {
	out := make([]string, len(pieces))
	for i := range pieces {
		out[i] = pieces[i].name
	}
	return out
}
