// Package arch tests the shape of the source tree itself: which package may
// import which, that each says what it owns, and that the dependencies are
// those that somebody agreed to.
package arch

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

// order lists the directories of agent, each with the packages below it. A
// package imports packages of its own directory and of those before it.
// ARCHITECTURE.md describes them in this order.
var order = []string{
	"wait",      // pause, jitter, backoff, one-slot wakeup
	"health",    // what a watchdog depends on, sd_notify
	"store",     // journal, sealed keys, secret files, file watches
	"metrics",   // counters, Prometheus text
	"pod",       // a pod's identity, QoS, requests; events
	"config",    // configuration, flags, eviction thresholds, version
	"apiserver", // client, list and watch, certificates, bootstrap, pod status manager, events
	"container", // CRI, containerd, configs, PLEG, images, logs
	"source",    // where pods, ConfigMaps and Secrets come from, the offline copy
	"node",      // machine, Node object, registration, shutdown, clock, kernel tunables
	"resource",  // eviction, CPU manager, OOM, resize, disk usage, user namespaces
	"podworker", // workers, sync, plan, admission, status, probes, hooks, volumes
	"network",   // pod network, routes, Services
	"server",    // kubelet API, streaming, statistics, local API, status page
	"preflight", // tinylet check
}

// placeOf is the place of a package in the order: packages outside agent import
// none of its packages, agent imports all, cmd/tinylet imports agent.
func placeOf(path string) int {
	top, rest, _ := strings.Cut(path, "/")
	switch {
	case slices.Contains([]string{"cgroups", "net", "board"}, top):
		return 0
	case path == "agent":
		return len(order) + 1
	case top == "agent":
		directory, _, _ := strings.Cut(rest, "/")
		if i := slices.Index(order, directory); i >= 0 {
			return i + 1
		}
	case top == "cmd":
		return len(order) + 2
	}
	return -1
}

func TestImportsFollowTheOrder(t *testing.T) {
	seen := make(map[int]bool)
	for _, p := range goList(t, "./agent/...", "./cmd/...", "./cgroups/...", "./board/...", "./net/...") {
		path := strings.TrimPrefix(p.ImportPath, module)
		from := placeOf(path)
		if from < 0 {
			t.Errorf("%s is in no directory of the order: move it, or add its directory to order here and in ARCHITECTURE.md", path)
			continue
		}
		seen[from] = true
		for _, imported := range p.Imports {
			target, ours := strings.CutPrefix(imported, module)
			if !ours {
				if from == 0 && (strings.HasPrefix(imported, "k8s.io/") || strings.HasPrefix(imported, "sigs.k8s.io/")) {
					t.Errorf("%s imports %s: it must not depend on Kubernetes", path, imported)
				}
				continue
			}
			if to := placeOf(target); to > from {
				t.Errorf("%s imports %s, which comes after it in the order", path, target)
			}
			if strings.HasPrefix(target, "test/") || strings.HasSuffix(target, "/fake") && path != "agent/container/conformance" {
				t.Errorf("%s imports %s: test code stays out of the product", path, target)
			}
		}
	}
	for i, directory := range order {
		if !seen[i+1] {
			t.Errorf("agent/%s is in the order and has no package", directory)
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

// oneFile has the reason of each package of the product that has one file only.
var oneFile = map[string]string{
	"agent/apiserver/strategicpatch":   "two writers need it, of a pod's status and of a node's; compared with apimachinery's in a module of its own",
	"agent/config/document":            "manifests and objects are read by the same decoder, which no configuration needs",
	"agent/config/version":             "the linker sets its variables; packages of every directory import it",
	"agent/container/native/pause":     "the boards of the tests have the same program",
	"agent/container/native/sessions":  "the only user of cri-streaming; knows no containerd and no keeper",
	"agent/health/sdnotify":            "the only user of go-systemd's daemon package",
	"agent/podworker/hook":             "podsync tests replace it; it imports no state of a sync",
	"agent/podworker/syncloop":         "the loop knows the workers, and not what they do",
	"agent/resource/resize/checkpoint": "resize is pure, and this has its file",
	"agent/server/profile":             "links memory profiling into the runtime",
	"agent/store/upgrade":              "the script trial has the same files, and works without the agent",
	"agent/store/secretfile":           "checks of owners and modes, for which atomicfile has no use",
	"cmd/tinylet/cniplugin":            "runs before the packages that it does not import",
	"net/netns":                        "link and podnet need it, and neither may import the other's thread handling",
}

func TestPackagesOfOneFileHaveAReason(t *testing.T) {
	found := map[string]bool{}
	for _, p := range goList(t, "./agent/...", "./cmd/...", "./cgroups/...", "./board/...", "./net/...") {
		path := strings.TrimPrefix(p.ImportPath, module)
		if len(p.GoFiles) != 1 || strings.HasSuffix(path, "test") { // a double of the package above it
			continue
		}
		found[path] = true
		if oneFile[path] == "" {
			t.Errorf("%s has one file: merge it into the package that uses it, or write its reason into oneFile", path)
		}
	}
	for path := range oneFile {
		if !found[path] {
			t.Errorf("%s is in oneFile and has not one file", path)
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
		if placeOf(short) < 0 || short == lint {
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
