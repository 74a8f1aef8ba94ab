package conformance

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestFiles reads the files that a run reads.
func TestFiles(t *testing.T) {
	selection, err := os.ReadFile("selection.yaml")
	if err != nil {
		t.Fatal(err)
	}
	exceptions, err := os.ReadFile("exceptions.yaml")
	if err != nil {
		t.Fatal(err)
	}
	r, err := ParseRules(selection, exceptions)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range append(r.Omit, r.Fail...) {
		if len(strings.Fields(x.Reason)) < 4 {
			t.Errorf("%s: %q is no reason", x.Match, x.Reason)
		}
	}
	for name, want := range map[string]bool{
		"[sig-node] Pods should be updated [NodeConformance] [Conformance]":                    true,
		"[sig-storage] ConfigMap should be consumable from pods in volume [NodeConformance]":   true,
		"[sig-network] Services should serve a basic endpoint from pods [Conformance]":         false,
		"[sig-node] SSH should SSH to all nodes and run commands":                              false,
		"[sig-storage] CSI Mock volume expansion should expand volume by restarting pod":       false,
		"[sig-storage] HostPathType File [Slow] Should fail on mounting file 'afile' when set": true,
	} {
		// The other rules match no name of this list, which is an error.
		c, _ := r.Choose([]string{name}, "")
		if got := len(c.Run) == 1; got != want {
			t.Errorf("%s: selected is %v, want %v", name, got, want)
		}
	}
}

func TestParseRulesRefuses(t *testing.T) {
	const good = "select: ['^a']"
	for _, c := range []struct{ what, selection, exceptions, want string }{
		{"no selection", "", "", "selects nothing"},
		{"an unknown key", "selects: [a]", "", "unknown field"},
		{"an expression that does not compile", "select: ['(']", "", "missing closing"},
		{"an empty expression", "select: ['']", "", "empty"},
		{"no reason", good, "omit: [{match: a}]", "no reason"},
		{"a blank reason", good, "fail: [{match: a, reason: ' '}]", "no reason"},
		{"an exception for everything", good, "omit: [{reason: it is slow}]", "empty"},
		{"an unknown key of an exception", good, "omit: [{match: a, reason: b, because: c}]", "unknown field"},
	} {
		if _, err := ParseRules([]byte(c.selection), []byte(c.exceptions)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.what, err, c.want)
		}
	}
}

func rules(t *testing.T) Rules {
	t.Helper()
	r, err := ParseRules([]byte("select: [node, storage]"), []byte(`
omit: [{match: pull, reason: no registry is there}]
fail: [{match: 'node slow', reason: the board is slow}]
`))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestChoose(t *testing.T) {
	all := []string{"storage a", "node pull", "node b", "network c", "node slow"}
	want := Choice{Selected: 4, Omitted: map[string]string{"node pull": "no registry is there"}, Run: []string{"node b", "node slow", "storage a"}}
	got, err := rules(t).Choose(all, "")
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	want.Run = []string{"node b", "node slow"}
	got, err = rules(t).Choose(all, "^node")
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("with a focus: %v (-want +got):\n%s", err, diff)
	}
	if _, err := rules(t).Choose(all, "("); err == nil {
		t.Error("a focus that does not compile is accepted")
	}
	if _, err := rules(t).Choose(all[1:], ""); err == nil || !strings.Contains(err.Error(), `"storage" matches no test`) {
		t.Errorf("a rule without a test: %v", err)
	}
}

func TestParseList(t *testing.T) {
	got, err := ParseList("The following spec names can be used with 'ginkgo run --focus/skip':\n" +
		"    k8s.io/kubernetes@v1.36.3/test/e2e/b.go:2: [sig-node] b: with a colon\n    a.go:1: [sig-node] a\n\n")
	if diff := cmp.Diff([]string{"[sig-node] a", "[sig-node] b: with a colon"}, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if _, err := ParseList("nothing\n"); err == nil {
		t.Error("an empty list is accepted")
	}
}

func TestFocus(t *testing.T) {
	re := regexp.MustCompile(Focus([]string{"[sig-node] a (root,0644)", "[sig-node] b"}))
	for name, want := range map[string]bool{
		"Kubernetes e2e suite [sig-node] a (root,0644)":         true,
		"Kubernetes e2e suite [sig-node] b":                     true,
		"Kubernetes e2e suite [sig-node] b more":                false,
		"Kubernetes e2e suite [sig-node] a before [sig-node] b": false,
		"[sig-node] b": false,
	} {
		if re.MatchString(name) != want {
			t.Errorf("%q: matches is %v, want %v", name, !want, want)
		}
	}
}
