package arch

import (
	"bytes"
	"go/version"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const (
	// newestGoLine is the Go of Buildroot's LTS release. It builds with
	// GOTOOLCHAIN=local, so a newer one in the go line of the product or of a
	// dependency would end its builds.
	newestGoLine = "go1.26.3"
	// oldestGoLine has the repairs of crypto/tls, crypto/x509 and os.Root that
	// port 10250 and the volumes depend on (CVE-2026-32280, -32281, -32282,
	// -32283). Newer repairs come with the toolchain line.
	oldestGoLine = "go1.26.2"
)

// TestGoLines holds the Go releases that the modules ask for: the go line names
// the oldest one that may build, the toolchain line the one that releases are
// built with.
func TestGoLines(t *testing.T) {
	root := filepath.Join("..", "..")
	goLine := regexp.MustCompile(`(?m)^go (\S+)$`)
	toolchainLine := regexp.MustCompile(`(?m)^toolchain (\S+)$`)
	read := func(path string) (line, toolchain string) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if m := goLine.FindSubmatch(text); m != nil {
			line = "go" + string(m[1])
		}
		if m := toolchainLine.FindSubmatch(text); m != nil {
			toolchain = string(m[1])
		}
		return line, toolchain
	}
	product, newest := read(filepath.Join(root, "go.mod"))
	if version.Compare(product, newestGoLine) > 0 || version.Compare(product, oldestGoLine) < 0 {
		t.Errorf("the go line of go.mod is %s, want %s to %s", product, oldestGoLine, newestGoLine)
	}
	if version.Compare(newest, "go1.26.8") < 0 {
		t.Errorf("the toolchain line of go.mod is %q, want go1.26.8 or later", newest)
	}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".cache" || d.Name() == "vendor" || d.Name() == ".git") {
			return filepath.SkipDir
		}
		if d.Name() != "go.mod" {
			return nil
		}
		line, toolchain := read(path)
		if version.Compare(line, oldestGoLine) < 0 || toolchain != newest {
			t.Errorf("%s: go line %s and toolchain line %q, want at least %s and %s", path, line, toolchain, oldestGoLine, newest)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestDependenciesBuildWithOldestGo holds the go lines of the modules that are
// linked into the binary.
func TestDependenciesBuildWithOldestGo(t *testing.T) {
	cmd := exec.Command("go", "list", "-deps", "-tags", "grpcnotrace", "-f", "{{with .Module}}{{.Path}} go{{.GoVersion}}{{end}}", "./cmd/tinylet")
	cmd.Dir = filepath.Join("..", "..")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, stderr.String())
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		path, wants, _ := strings.Cut(strings.TrimSpace(line), " ")
		if path == "" || seen[path] {
			continue
		}
		seen[path] = true
		if version.IsValid(wants) && version.Compare(wants, newestGoLine) > 0 {
			t.Errorf("%s needs %s, want at most %s", path, wants, newestGoLine)
		}
	}
	if len(seen) < 10 {
		t.Errorf("go list showed %d modules", len(seen))
	}
}
