package arch

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// documents returns the paths of the Markdown files, relative to the root of
// the tree.
func documents(t *testing.T, root string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && slices.Contains([]string{".git", ".cache", "bin", "vendor", "testdata"}, d.Name()) {
			return filepath.SkipDir
		}
		if filepath.Ext(path) == ".md" {
			all = append(all, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestDocumentsLinkToWhatExists checks relative links of the documents, and
// their anchors in other documents.
func TestDocumentsLinkToWhatExists(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading := regexp.MustCompile(`(?m)^#+ (.*)$`)
	notInAnchor := regexp.MustCompile(`[^\w\- ]`)
	texts, anchors := map[string]string{}, map[string][]string{}
	for _, path := range documents(t, filepath.Join("..", "..")) {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		texts[path] = string(data)
		for _, m := range heading.FindAllStringSubmatch(string(data), -1) {
			anchor := notInAnchor.ReplaceAllString(strings.ToLower(strings.TrimSpace(m[1])), "")
			anchors[path] = append(anchors[path], strings.ReplaceAll(anchor, " ", "-"))
		}
	}
	links := 0
	for path, text := range texts {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			links++
			file, anchor, _ := strings.Cut(m[1], "#")
			target := path
			if file != "" {
				target = filepath.Join(filepath.Dir(path), filepath.FromSlash(file))
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: %v", path, m[1], err)
			} else if anchor != "" && !slices.Contains(anchors[target], anchor) {
				t.Errorf("%s links to %s, which has no such heading", path, m[1])
			}
		}
	}
	if links < 50 {
		t.Errorf("only %d links", links)
	}
}

// productSource returns the Go files of the product without its tests.
func productSource(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, top := range []string{"agent", "cmd", "net", "cgroups"} {
		err := filepath.WalkDir(filepath.Join("..", "..", top), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			data, err := os.ReadFile(path)
			b.Write(data)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// firstCells returns the quoted texts in the first cells of the tables below a
// heading of a document, up to the next heading of the same level. Without a
// heading it returns those of all tables.
func firstCells(t *testing.T, path, heading string) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(path)))
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	if heading != "" {
		_, rest, ok := strings.Cut(text, "\n## "+heading+"\n")
		if !ok {
			t.Fatalf("%s has no heading %q", path, heading)
		}
		text, _, _ = strings.Cut(rest, "\n## ")
	}
	quoted := regexp.MustCompile("`([^`]+)`")
	var all []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		for _, m := range quoted.FindAllStringSubmatch(strings.Split(line, "|")[1], -1) {
			all = append(all, m[1])
		}
	}
	if len(all) < 20 {
		t.Fatalf("%s has only %d quoted texts", path, len(all))
	}
	return all
}

// TestTroubleshootingQuotesTheProduct checks that the log messages and the
// reasons of events in the page are those of the code.
func TestTroubleshootingQuotesTheProduct(t *testing.T) {
	code := productSource(t)
	for _, heading := range []string{"Events", "Log messages"} {
		for _, text := range firstCells(t, "docs/use/troubleshooting.md", heading) {
			if !strings.Contains(code, `"`+text+`"`) {
				t.Errorf("troubleshooting.md, %s: the code has no %q", heading, text)
			}
		}
	}
}

// TestMetricsPageIsComplete compares the names in the page with those of the
// code.
func TestMetricsPageIsComplete(t *testing.T) {
	code := productSource(t)
	page := firstCells(t, "docs/reference/metrics.md", "")
	for _, name := range page {
		if !strings.HasPrefix(name, "/") && !strings.Contains(code, `"`+name+`"`) {
			t.Errorf("metrics.md: the code has no %q", name)
		}
	}
	for _, m := range regexp.MustCompile(`\.Family\([^,]+, "(\w+)"`).FindAllStringSubmatch(code, -1) {
		if !slices.Contains(page, m[1]) {
			t.Errorf("metrics.md has no %s", m[1])
		}
	}
}
