package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestBoundsNameTests checks that each test in the page on bounds is there: a
// row whose test was renamed or removed is a promise that nobody keeps.
func TestBoundsNameTests(t *testing.T) {
	root := filepath.Join("..", "..")
	page, err := os.ReadFile(filepath.Join(root, "docs", "reference", "bounds.md"))
	if err != nil {
		t.Fatal(err)
	}
	quoted := regexp.MustCompile("`([^`]+)`")
	names := 0
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.TrimSuffix(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 5 || strings.HasPrefix(line, "|---") || strings.TrimSpace(cells[4]) == "test" {
			continue
		}
		dir, found := "", 0
		for _, m := range quoted.FindAllStringSubmatch(cells[4], -1) {
			if strings.Contains(m[1], "/") {
				dir = m[1]
				continue
			}
			found++
			if !hasFunction(t, filepath.Join(root, filepath.FromSlash(dir)), m[1]) {
				t.Errorf("%s has no %s, which bounds.md names", dir, m[1])
			}
		}
		if found == 0 && !strings.HasPrefix(strings.TrimSpace(cells[4]), "none: ") {
			t.Errorf("no test is named for %q", strings.TrimSpace(cells[1]))
		}
		names += found
	}
	if names == 0 {
		t.Error("bounds.md names no test: is its table another one?")
	}
}

// hasFunction reports whether a Go file in dir declares a function.
func hasFunction(t *testing.T, dir, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "\nfunc "+name+"(") {
			return true
		}
	}
	return false
}
