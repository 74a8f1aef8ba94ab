package arch

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestFieldCasesHaveTheirTests checks that each test which
// docs/dev/field-cases.md names exists, and that each row names one.
func TestFieldCasesHaveTheirTests(t *testing.T) {
	root := filepath.Join("..", "..")
	page, err := os.ReadFile(filepath.Join(root, "docs", "dev", "field-cases.md"))
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile("`([a-z0-9/]+)\\.(Test[A-Za-z0-9]+)`")
	rows := 0
	for line := range bytes.Lines(page) {
		if !bytes.HasPrefix(line, []byte("| ")) || bytes.HasPrefix(line, []byte("| reference")) {
			continue
		}
		rows++
		found := name.FindAllSubmatch(line, -1)
		if len(found) == 0 {
			t.Errorf("no test is named: %s", line)
		}
		for _, m := range found {
			if !hasTest(t, filepath.Join(root, string(m[1])), string(m[2])) {
				t.Errorf("%s has no %s", m[1], m[2])
			}
		}
	}
	if rows == 0 {
		t.Error("the page has no rows")
	}
}

// hasTest reports whether a folder has a test of that name.
func hasTest(t *testing.T, folder, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(text, []byte("\nfunc "+name+"(")) {
			return true
		}
	}
	return false
}
