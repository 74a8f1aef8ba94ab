// Package tree tests the shape of the source tree itself: which package may
// import which, that each says what it owns, and that the dependencies are
// those that somebody agreed to.
package tree

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const module = "github.com/tinylet/tinylet/"

var update = flag.Bool("update", false, "rewrite testdata/deps.txt")

// listed is what the tests read of `go list -json`.
type listed struct {
	ImportPath string
	Dir        string
	Doc        string
	Imports    []string
	Deps       []string
	Standard   bool
	GoFiles    []string
}

func goList(t *testing.T, args ...string) []listed {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Dir,Doc,Imports,Deps,Standard,GoFiles"}, args...)...)
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=arm64", "CGO_ENABLED=0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, stderr.String())
	}
	var all []listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// layers are the import layers, the lowest first: a package imports only
// packages of lower layers. ARCHITECTURE.md draws them. A path ending in
// /... stands for all below it, which may import their siblings.
var layers = [][]string{
	0: {"cgroups", "net/...", "board/...", "agent/health"},
	1: {"agent/pod", "agent/config/version", "agent/node/tunables", "agent/config/document", "agent/store/journal", "agent/apiserver/strategicpatch", "agent/metrics/...", "agent/store/tpmkey", "agent/server/remotecommand", "agent/server/connlimit", "agent/store/secretfile"},
	2: {"agent/container", "agent/pod/event", "agent/container/podlogs", "agent/source/objects", "agent/apiserver/apiclient", "agent/node/clock", "agent/resource/diskusage", "agent/resource/eviction/policy"},
	3: {"agent/config", "agent/container/criconfig", "agent/podworker/handler", "agent/node/machine", "agent/apiserver/identity", "agent/server/authn/...", "agent/resource/cpumanager/policy", "agent/resource/resize/...", "agent/apiserver/listwatch/..."},
	4: {
		"agent/podworker/plan", "agent/podworker/podstatus", "agent/podworker/volume", "agent/container/image", "agent/container/pleg", "agent/source/...",
		"agent/podworker/admission", "agent/server/local", "agent/podworker", "agent/podworker/probe", "agent/podworker/hook",
		"agent/container/logrotate", "agent/container/reaper", "agent/resource/oom", "agent/resource/selfprotect", "agent/container/preload", "agent/resource/userns", "agent/node/nodestatus",
		"agent/apiserver/statusmanager", "agent/source/offline", "agent/node/shutdown", "agent/apiserver/bootstrap", "agent/source/apiobjects", "agent/apiserver/eventsink",
		"agent/health/sdnotify", "agent/server/stats", "agent/server/authz", "agent/server/streaming", "agent/server/statuspage", "agent/resource/cpumanager", "agent/network", "agent/network/routes", "agent/network/proxy",
		"agent/container/cri", "agent/container/containerd", "agent/container/fake",
	},
	5: {"agent/podworker/podsync", "agent/preflight", "agent/resource/eviction", "agent/podworker/syncloop", "agent/node/registration", "agent/server/...", "agent/container/conformance"},
	6: {"agent"},
	7: {"cmd/..."},
}

func layerOf(path string) int {
	for i, layer := range layers {
		for _, pattern := range layer {
			root, tree := strings.CutSuffix(pattern, "/...")
			if path == pattern || (tree && (path == root || strings.HasPrefix(path, root+"/"))) {
				return i
			}
		}
	}
	return -1
}

// sibling says whether two packages stand under one pattern that ends in
// /... and may therefore import each other.
func sibling(a, b string) bool {
	for _, layer := range layers {
		for _, pattern := range layer {
			if root, ok := strings.CutSuffix(pattern, "/..."); ok {
				if strings.HasPrefix(a+"/", root+"/") && strings.HasPrefix(b+"/", root+"/") {
					return true
				}
			}
		}
	}
	return false
}

func TestImportsGoStrictlyDown(t *testing.T) {
	for _, p := range goList(t, "./agent/...", "./cmd/...", "./cgroups/...", "./board/...", "./net/...") {
		path := strings.TrimPrefix(p.ImportPath, module)
		from := layerOf(path)
		if from < 0 {
			t.Errorf("%s stands in no layer: add it to layers here and in ARCHITECTURE.md", path)
			continue
		}
		for _, imported := range p.Imports {
			target, ours := strings.CutPrefix(imported, module)
			if !ours {
				if from == 0 && (strings.HasPrefix(imported, "k8s.io/") || strings.HasPrefix(imported, "sigs.k8s.io/")) {
					t.Errorf("%s imports %s: layer 0 knows no Kubernetes", path, imported)
				}
				continue
			}
			if to := layerOf(target); to >= from && !sibling(path, target) {
				t.Errorf("%s (layer %d) imports %s (layer %d): imports go strictly down", path, from, target, to)
			}
			if strings.HasPrefix(target, "test/") || strings.HasSuffix(target, "/fake") && path != "agent/container/conformance" {
				t.Errorf("%s imports %s: test code stays out of the product", path, target)
			}
		}
	}
}

func TestEveryPackageSaysWhatItOwns(t *testing.T) {
	for _, p := range goList(t, "./...") {
		path := strings.TrimPrefix(p.ImportPath, module)
		if len(p.GoFiles) > 0 && len(p.Doc) < 20 {
			t.Errorf("%s has no doc comment that says what it owns", path)
		}
		switch filepath.Base(path) {
		case "util", "utils", "common", "helper", "helpers", "misc", "runtime":
			t.Errorf("%s: a package is named by what it owns", path)
		}
	}
}

// TestErrorsHaveOneLogKey fails for a log attribute that gives an error by
// another key than "error": who searches a log should need one word.
func TestErrorsHaveOneLogKey(t *testing.T) {
	other := regexp.MustCompile(`"(err|e|failure|cause)",\s*(err|errors\.|oneLine\()`)
	for _, p := range goList(t, "./...") {
		for _, name := range p.GoFiles {
			path := filepath.Join(p.Dir, name)
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for i, line := range strings.Split(string(data), "\n") {
				if other.MatchString(line) {
					t.Errorf("%s:%d: log the error by the key \"error\"", path, i+1)
				}
			}
		}
	}
}

// TestPatternsAreCompiledLate fails for a regular expression that is compiled
// when its package is initialized: the agent, the CNI plugin and each command
// would spend time on it at their start. sync.OnceValue compiles it at its first
// use.
func TestPatternsAreCompiledLate(t *testing.T) {
	early := regexp.MustCompile(`(?m)^(var \w+|\t\w+) *= regexp\.MustCompile`)
	// Only tests import it.
	const lint = "agent/metrics/metricstest"
	for _, p := range goList(t, "./...") {
		short := strings.TrimPrefix(p.ImportPath, module)
		if layerOf(short) < 0 || short == lint {
			continue
		}
		for _, name := range p.GoFiles {
			path := filepath.Join(p.Dir, name)
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, found := range early.FindAll(data, -1) {
				t.Errorf("%s: %q is compiled at the start: use sync.OnceValue", path, found)
			}
		}
	}
}

// TestDependencies fails when the binary links a package that the list does
// not have, or no longer links one that it has: growth is a decision.
func TestDependencies(t *testing.T) {
	var got []string
	for _, p := range goList(t, "-tags", "grpcnotrace", "-deps", "./cmd/tinylet") {
		if !p.Standard && !strings.HasPrefix(p.ImportPath, module) {
			got = append(got, p.ImportPath)
		}
	}
	slices.Sort(got)
	file := filepath.Join("testdata", "deps.txt")
	if *update {
		if err := os.WriteFile(file, []byte(strings.Join(got, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Fields(string(want)), got); diff != "" {
		t.Errorf("packages linked into tinylet (-agreed +now); `make deps` accepts them:\n%s", diff)
	}
}
