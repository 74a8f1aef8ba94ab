package arch

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// makeBinary runs the Makefile's target for one architecture with variables set
// on the command line. It returns the binary's path and what the build printed.
func makeBinary(t *testing.T, arch string, variables ...string) (string, []byte) {
	t.Helper()
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("the Makefile builds the binary, and make is not installed")
	}
	out := t.TempDir()
	cmd := exec.Command("make", append([]string{"--no-print-directory", "build-" + arch, "OUT=" + out}, variables...)...)
	cmd.Dir = filepath.Join("..", "..")
	// The variables of a make that runs this test are not for this one.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "MAKE") || strings.HasPrefix(v, "MFLAGS=")
	})
	printed, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, printed[max(0, len(printed)-2000):])
	}
	return filepath.Join(out, "tinylet-"+arch), printed
}

// TestLinkerDropsMethods fails when a reachable function finds methods by a
// name that is not constant. The linker then keeps every exported method of
// every reachable type, which once made the binary 4.3 MB larger. Nothing in the
// binary needs that today, the standard library included.
func TestLinkerDropsMethods(t *testing.T) {
	if testing.Short() {
		t.Skip("links the binary")
	}
	_, printed := makeBinary(t, "arm64", "LDFLAGS=-s -w -dumpdep")
	found, edges := reflectMethods(printed)
	if edges < 10_000 {
		t.Fatalf("the linker printed %d dependencies, want those of the whole binary", edges)
	}
	for _, chain := range found[:min(len(found), 3)] {
		t.Errorf("the linker keeps all exported methods, because this calls methods by name:\n\t%s", strings.Join(chain, "\n\t-> "))
	}
}

// reflectMethods reads the output of the linker's -dumpdep. It returns how each
// function marked <ReflectMethod> is reached, and the number of dependencies.
func reflectMethods(printed []byte) (found [][]string, edges int) {
	parents := map[string]string{}
	var marked []string
	for lines := bufio.NewScanner(bytes.NewReader(printed)); lines.Scan(); {
		from, to, ok := strings.Cut(lines.Text(), " -> ")
		if !ok {
			continue
		}
		edges++
		from, to = symbol(from), strings.TrimSpace(to)
		if name := symbol(to); parents[name] == "" {
			parents[name] = from
			if strings.HasSuffix(to, "<ReflectMethod>") {
				marked = append(marked, name)
			}
		}
	}
	for _, name := range marked {
		var chain []string
		for seen := map[string]bool{}; name != "" && name != "_" && !seen[name]; name = parents[name] {
			seen[name] = true
			chain = append(chain, name)
		}
		slices.Reverse(chain)
		found = append(found, chain)
	}
	return found, edges
}

// symbol is a symbol without the flags that the linker prints after it.
func symbol(text string) string {
	name, _, _ := strings.Cut(text, " <")
	return strings.TrimSpace(name)
}

func TestReflectMethods(t *testing.T) {
	const printed = `# example.org/cmd
_ -> _rt0_arm64_linux
_rt0_arm64_linux -> main.main
main.main -> type:main.T <UsedInIface>
type:main.T <UsedInIface> -> main.(*T).Call <UsedInIface><ReflectMethod>
main.main -> go:string."no <ReflectMethod>"
main.(*T).Call <UsedInIface><ReflectMethod> -> reflect.Value.MethodByName
`
	got, edges := reflectMethods([]byte(printed))
	want := [][]string{{"_rt0_arm64_linux", "main.main", "type:main.T", "main.(*T).Call"}}
	if diff := cmp.Diff(want, got); diff != "" || edges != 6 {
		t.Errorf("%d dependencies, want 6; chains (-want +got):\n%s", edges, diff)
	}
}

// TestStamps builds the binary with the Makefile and asks it for its release and
// build time: the linker ignores a wrong path after -X without a word.
func TestStamps(t *testing.T) {
	if testing.Short() {
		t.Skip("links the binary")
	}
	if !slices.Contains([]string{"amd64", "arm64"}, runtime.GOARCH) {
		t.Skip("the Makefile has no target that this machine can run")
	}
	bin, _ := makeBinary(t, runtime.GOARCH, "VERSION=9.8.7", "BUILD_UNIX=1767225600", "COMMIT=0123456789abcdef")
	for _, args := range [][]string{{"--version"}, {"version"}} {
		out, err := exec.Command(bin, args...).CombinedOutput()
		if got, want := string(out), "Kubernetes v1.36.0+tinylet.9.8.7\n"; err != nil || got != want {
			t.Errorf("%v printed %q (%v), want %q", args, got, err, want)
		}
	}
	out, err := exec.Command(bin, "version", "-o", "json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var document struct{ Release, Commit, Built, Go string }
	if err := json.Unmarshal(out, &document); err != nil {
		t.Fatalf("parse %s: %v", out, err)
	}
	if document.Release != "9.8.7" || document.Commit != "0123456789abcdef" || document.Built != "2026-01-01T00:00:00Z" || !strings.HasPrefix(document.Go, "go1.") {
		t.Errorf("version -o json says %+v", document)
	}
}

// TestBuildrootStampsTheSame compares the paths after -X: TestStamps shows that
// those of the Makefile are right.
func TestBuildrootStampsTheSame(t *testing.T) {
	paths := func(file string, variables ...string) []string {
		text, err := os.ReadFile(filepath.Join("..", "..", file))
		if err != nil {
			t.Fatal(err)
		}
		expanded := string(text)
		for _, name := range variables {
			m := regexp.MustCompile(`(?m)^` + name + ` :?= *(\S+)$`).FindStringSubmatch(expanded)
			if m == nil {
				t.Fatalf("%s does not set %s", file, name)
			}
			expanded = strings.ReplaceAll(expanded, fmt.Sprintf("$(%s)", name), m[1])
		}
		var all []string
		for _, m := range regexp.MustCompile(`-X ([^\s=]+)=`).FindAllStringSubmatch(expanded, -1) {
			if strings.Contains(m[1], "tinylet") { // the Makefile stamps Kubernetes' servers, too
				all = append(all, m[1])
			}
		}
		slices.Sort(all)
		return all
	}
	want := paths("Makefile", "STAMP")
	if len(want) != 3 {
		t.Fatalf("the Makefile stamps %v, want three variables", want)
	}
	if diff := cmp.Diff(want, paths("buildroot/package/tinylet/tinylet.mk", "TINYLET_GOMOD")); diff != "" {
		t.Errorf("stamped by the Makefile and by Buildroot (-Makefile +Buildroot):\n%s", diff)
	}
}
