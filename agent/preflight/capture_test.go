package preflight

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "update the golden files")

// TestCapturedTrees evaluates captured trees of boards. It omits what a tree of
// files does not hold.
func TestCapturedTrees(t *testing.T) {
	for _, tt := range []struct{ tree, arch string }{
		{"arm64-virt", "arm64"},
		{"arm64-virt-nomemory", "arm64"},
		{"armv7-virt", "arm"},
		{"armv7-raspi2b-nomemory", "arm"},
	} {
		t.Run(tt.tree, func(t *testing.T) {
			f := Collect(t.Context(), Options{Root: filepath.Join("testdata", tt.tree), Endpoint: "unix:///nowhere", Input: Input{Now: healthy().Now}})
			f.Arch, f.UID = tt.arch, 0
			f.Directories = nil
			var b strings.Builder
			for _, finding := range Evaluate(f) {
				switch finding.ID {
				case "runtime", "masquerade", "bandwidth": // these modules' names were not kept
					continue
				}
				fmt.Fprintf(&b, "%s %s: %s\n", finding.Level, finding.ID, finding.What)
				if finding.Remedy != "" {
					fmt.Fprintf(&b, "    %s\n", finding.Remedy)
				}
			}
			golden(t, tt.tree+".golden", b.String())
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}
