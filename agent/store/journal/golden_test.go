package journal

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

var update = flag.Bool("update", false, "rewrite testdata")

// TestGolden reads journals that earlier versions of this package wrote: existing
// journals must stay readable.
func TestGolden(t *testing.T) {
	want := state{"a": "1", "empty": "", "large": large(700, 1)}
	forms(t, func(t *testing.T, seal *sealer) {
		file := filepath.Join("testdata", "plain.journal")
		if seal != nil {
			file = filepath.Join("testdata", "sealed.journal")
		}
		if *update {
			synctest.Test(t, func(t *testing.T) {
				m := newModel()
				j := mustOpen(t, m, seal)
				mustWrite(t, j, put("a", "1"), put("gone", "x"))
				mustWrite(t, j, put("empty", ""), put("large", large(700, 1)), del("gone"))
				if err := os.WriteFile(file, m.names[fileName].now, 0o644); err != nil {
					t.Fatal(err)
				}
			})
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		survives(t, file, data, seal, want, 0)
		// The beginning of virtual time.
		newest := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
		if got := mustOpen(t, modelWith(data), seal).Newest(); !got.Equal(newest) {
			t.Errorf("newest is %v, want %v", got, newest)
		}
	})
}
