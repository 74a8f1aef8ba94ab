// Package upstream compares the defaults and the validation of static pods with
// those of the kubelet.
package upstream

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/capabilities"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/config"
	"sigs.k8s.io/yaml"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/source/manifest"
)

const nodeName = "board-1"

var (
	mutations = flag.Int("mutations", 4000, "compare so many pods that are changed at random")
	seed      = flag.Uint64("seed", 1, "change pods by these random numbers")
)

// Lower bounds of the documents that both accept and that both reject, so that the
// comparison compares something: numbers for the corpus, and parts of the mutations.
const (
	minAccepted, minRejected         = 140, 330
	minAcceptedPart, minRejectedPart = 0.3, 0.4
)

func TestMain(m *testing.M) {
	capabilities.Initialize(capabilities.Capabilities{AllowPrivileged: true}) // as a kubelet does
	os.Exit(m.Run())
}

// allowReferences disables the kubelet's check for references to objects of the
// API, which rejects a pod before its defaults can be compared.
func allowReferences(t *testing.T) {
	t.Helper()
	if err := utilfeature.DefaultMutableFeatureGate.Set(string(features.PreventStaticPodAPIReferences) + "=false"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = utilfeature.DefaultMutableFeatureGate.Set(string(features.PreventStaticPodAPIReferences) + "=true")
	})
}

// An entry of intended.yaml is one intended difference.
type entry struct {
	// Here matches errors that only tinylet reports, Kubelet matches errors that
	// only the kubelet reports. With both, the two errors are about the same fault.
	Here    string `json:"here"`
	Kubelet string `json:"kubelet"`
	// Default matches fields of pods that both accept.
	Default string `json:"default"`
	// With, if it is set, matches an error of either in the same document.
	With   string `json:"with"`
	Reason string `json:"reason"`

	here, kubelet, field, with *regexp.Regexp
	used                       bool
}

type intended []*entry

func readIntended(t *testing.T) (entries intended) {
	t.Helper()
	text, err := os.ReadFile("intended.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(text, &entries); err != nil {
		t.Fatal(err)
	}
	compile := func(expression string) *regexp.Regexp {
		if expression == "" {
			return nil
		}
		return regexp.MustCompile(`(?s)\A(?:` + expression + `)\z`)
	}
	for i, e := range entries {
		e.here, e.kubelet, e.field, e.with = compile(e.Here), compile(e.Kubelet), compile(e.Default), compile(e.With)
		if e.Reason == "" || (e.here == nil && e.kubelet == nil) == (e.field == nil) {
			t.Errorf("entry %d is incomplete: %+v", i+1, *e)
		}
	}
	return entries
}

// difference is one that intended.yaml has to explain.
type difference struct{ here, kubelet, field string }

func (d difference) String() string {
	switch {
	case d.field != "":
		return "default: " + d.field
	case d.here != "":
		return "only here: " + d.here
	}
	return "only the kubelet: " + d.kubelet
}

// explain returns the differences that no entry matches, of a document with these
// errors. Entries that match are used from then on.
func (entries intended) explain(differences []difference, mine, others []fault) []difference {
	for _, e := range entries {
		if !e.counts(mine, others) {
			continue
		}
		rest := slices.DeleteFunc(slices.Clone(differences), func(d difference) bool {
			return matches(e.field, d.field) || matches(e.here, d.here) || matches(e.kubelet, d.kubelet)
		})
		if len(rest) < len(differences) {
			e.used, differences = true, rest
		}
	}
	return differences
}

// counts reports whether the document has what the entry requires.
func (e *entry) counts(mine, others []fault) bool {
	has := func(faults []fault, expression *regexp.Regexp) bool {
		return slices.ContainsFunc(faults, func(f fault) bool { return matches(expression, f.text) })
	}
	if e.here != nil && e.kubelet != nil && !(has(mine, e.here) && has(others, e.kubelet)) {
		return false
	}
	return e.with == nil || has(mine, e.with) || has(others, e.with)
}

func matches(expression *regexp.Regexp, text string) bool {
	return expression != nil && text != "" && expression.MatchString(text)
}

// fault is an error of either side.
type fault struct{ field, text string }

// whole is the field of errors about the document as a whole.
const whole = "document"

var index = regexp.MustCompile(`\[\d+\]`)

func faultOf(err error) fault {
	if e, ok := err.(*field.Error); ok {
		name := index.ReplaceAllString(e.Field, "")
		return fault{name, name + ": " + e.ErrorBody()}
	}
	return fault{whole, whole + ": " + err.Error()}
}

func faultsOf[E error](errs []E) (faults []fault) {
	for _, err := range errs {
		if f := faultOf(err); !slices.Contains(faults, f) {
			faults = append(faults, f)
		}
	}
	return faults
}

// related reports whether two errors are about the same field, or one about a part
// of the other's. Indices do not count: upstream omits many.
func related(a, b fault) bool {
	within := func(a, b string) bool {
		rest, ok := strings.CutPrefix(a, b)
		return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
	}
	a.field, b.field = strings.ToLower(a.field), strings.ToLower(b.field)
	return within(a.field, b.field) || within(b.field, a.field)
}

// comparison is the state of one test.
type comparison struct {
	t        *testing.T
	k        *kubelet
	intended intended
	// Documents that both accept, that both reject, and that only one rejects.
	both, neither, onlyHere, onlyKubelet int
}

// here parses a document as tinylet does.
func (c *comparison) here(text []byte) (*v1.Pod, []fault, error) {
	m := manifest.Parse(text, manifest.Origin{Source: pod.SourceHTTP, Location: c.k.url, NodeName: nodeName})
	var warning error
	for _, problem := range m.Problems {
		if problem.Warning {
			warning = problem.Err
			continue
		}
		if all, ok := problem.Err.(utilerrors.Aggregate); ok {
			return nil, faultsOf(all.Errors()), warning
		}
		// Nothing was validated.
		return nil, []fault{{whole, faultOf(problem.Err).text}}, warning
	}
	if len(m.Pods) == 0 {
		return nil, []fault{{whole, whole + ": no pods"}}, warning
	}
	return m.Pods[0], nil, warning
}

// compare compares one document and returns the differences that are not intended.
func (c *comparison) compare(d document) []difference {
	c.t.Helper()
	ours, mine, warning := c.here(d.text)
	if d.accepted != nil && warning != nil {
		c.t.Errorf("%s: %v", d.name, warning)
	}
	theirs, err := c.k.parse(d.text)
	errs, decoding := upstreamErrors(d.text)
	var others []fault
	if decoding != nil {
		others = []fault{faultOf(decoding)}
	} else {
		others = faultsOf(errs)
	}
	// The source runs without the check for references, apart from two kinds.
	rejected := slices.ContainsFunc(others, func(f fault) bool {
		return f.field != references || strings.HasSuffix(f.text, resourceClaims) || strings.HasSuffix(f.text, trustBundles)
	})
	if (err != nil) != rejected {
		c.t.Errorf("%s: the source of the kubelet reports %v, its validation %v", d.name, err, others)
	}
	if d.accepted != nil && *d.accepted != (err == nil) {
		c.t.Errorf("%s: the kubelet reports %v", d.name, err)
	}

	var differences []difference
	// The errors of a side are compared unless the other side only reports that it
	// could not decode the document.
	if len(mine) == 0 || len(others) == 0 || !undecoded(slices.Concat(mine, others)...) {
		for _, f := range mine {
			if !slices.ContainsFunc(others, func(o fault) bool { return related(f, o) }) {
				differences = append(differences, difference{here: f.text})
			}
		}
		for _, f := range others {
			if !slices.ContainsFunc(mine, func(o fault) bool { return related(f, o) }) {
				differences = append(differences, difference{kubelet: f.text})
			}
		}
	}
	if err == nil && len(mine) == 0 {
		for _, name := range changes(tree(c.t, ours), tree(c.t, theirs[0]), "") {
			differences = append(differences, difference{field: name})
		}
	}
	switch {
	case err == nil && len(mine) == 0:
		c.both++
	case err != nil && len(mine) > 0:
		c.neither++
	case err == nil:
		c.onlyHere++
	default:
		c.onlyKubelet++
	}
	return c.intended.explain(differences, mine, others)
}

// undecoded reports whether one side reports that it could not decode the document.
// It has not validated it then.
func undecoded(faults ...fault) bool {
	return slices.ContainsFunc(faults, func(f fault) bool { return f.field == whole })
}

// tree returns a pod as plain values, without what identifies it on this node.
func tree(t *testing.T, p *v1.Pod) map[string]any {
	t.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	delete(out, "kind")
	delete(out, "apiVersion")
	metadata := out["metadata"].(map[string]any)
	if len(p.UID) == 32 { // made by the source
		delete(metadata, "uid")
	}
	annotations := metadata["annotations"].(map[string]any)
	delete(annotations, pod.AnnotationHash)
	delete(annotations, pod.AnnotationSource) // set by the kubelet when it merges its sources
	return out
}

// changes returns the fields in which two values differ, without indices.
func changes(a, b any, at string) (fields []string) {
	if reflect.DeepEqual(a, b) {
		return nil
	}
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok {
			break
		}
		for key := range y {
			if _, ok := x[key]; !ok {
				fields = append(fields, join(at, key)+fmt.Sprintf(": only the kubelet has %v", y[key]))
			}
		}
		for key := range x {
			if value, ok := y[key]; ok {
				fields = append(fields, changes(x[key], value, join(at, key))...)
			} else {
				fields = append(fields, join(at, key)+fmt.Sprintf(": only here is %v", x[key]))
			}
		}
		slices.Sort(fields)
		return fields
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			break
		}
		for i := range x {
			fields = append(fields, changes(x[i], y[i], at)...)
		}
		return fields
	}
	return []string{fmt.Sprintf("%s: %v, of the kubelet %v", at, a, b)}
}

func join(at, key string) string {
	if at == "" {
		return key
	}
	return at + "." + key
}

// check compares documents, and fails for each with differences that are not
// intended, up to 30.
func (c *comparison) check(documents []document) {
	c.t.Helper()
	failed := 0
	for _, d := range documents {
		if rest := c.compare(d); len(rest) > 0 {
			c.t.Errorf("%s: not intended: %v\n%s", d.name, rest, d.text)
			if failed++; failed == 30 {
				c.t.Fatal("more differences are not listed")
			}
		}
	}
}

// enough fails if fewer documents are accepted or rejected by both.
func (c *comparison) enough(accepted, rejected int) {
	c.t.Helper()
	c.t.Logf("both accept %d, both reject %d, only tinylet rejects %d, only the kubelet rejects %d", c.both, c.neither, c.onlyHere, c.onlyKubelet)
	if c.both < accepted || c.neither < rejected {
		c.t.Errorf("want at least %d that both accept and %d that both reject", accepted, rejected)
	}
}

func newComparison(t *testing.T) *comparison {
	allowReferences(t)
	return &comparison{t: t, k: newKubelet(), intended: readIntended(t)}
}

// TestCorpus compares the pods of the corpus, the inputs of the other tests and the
// seeds of the fuzz targets. Each intended difference occurs there.
func TestCorpus(t *testing.T) {
	c := newComparison(t)
	c.check(corpus(t))
	c.check(seeds(t))
	for _, e := range c.intended {
		if !e.used {
			t.Errorf("no document has the intended difference %+v", *e)
		}
	}
	c.enough(minAccepted, minRejected)
}

// TestMutations compares pods of the corpus that are changed at random, the same in
// each run.
func TestMutations(t *testing.T) {
	c := newComparison(t)
	base := corpus(t)
	m := newMutator(base, *seed)
	var valid []document
	for _, d := range base {
		if *d.accepted {
			valid = append(valid, d)
		}
	}
	seen := make(map[string]bool)
	var documents []document
	for len(documents) < *mutations {
		d := valid[m.random.IntN(len(valid))]
		text, err := yaml.Marshal(m.mutate(d.tree))
		if err != nil {
			t.Fatal(err)
		}
		if !seen[string(text)] {
			seen[string(text)] = true
			documents = append(documents, document{name: fmt.Sprintf("mutation %d of %s", len(documents), d.name), text: text})
		}
	}
	c.check(documents)
	c.enough(int(minAcceptedPart*float64(*mutations)), int(minRejectedPart*float64(*mutations)))
}

// TestFileSource compares pods of files, with the kubelet's own check for
// references to objects of the API: the kubelet's source runs the pods of the
// corpus that its validation accepts, and its pods are tinylet's.
func TestFileSource(t *testing.T) {
	entries := readIntended(t)
	directory := t.TempDir()
	want := make(map[string]document)
	for _, d := range corpus(t) {
		name := fmt.Sprintf("pod-%d", len(want))
		d.tree["metadata"].(map[string]any)["name"] = name
		text, err := yaml.Marshal(d.tree)
		if err != nil {
			t.Fatal(err)
		}
		d.text = text
		file := filepath.Join(directory, name+".yaml")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if errs, err := upstreamErrors(text); err == nil && len(errs) == 0 {
			want[name+"-"+nodeName] = d
		}
	}
	pods := fileSource(config.NewSourceFile, directory)
	if len(pods) < 100 {
		t.Errorf("the kubelet runs %d pods", len(pods))
	}
	for _, theirs := range pods {
		d, ok := want[theirs.Name]
		if !ok {
			t.Errorf("the kubelet runs pod %s, which its validation rejects", theirs.Name)
			continue
		}
		delete(want, theirs.Name)
		file := filepath.Join(directory, strings.TrimSuffix(theirs.Name, "-"+nodeName)+".yaml")
		m := manifest.Parse(d.text, manifest.Origin{Source: pod.SourceFile, Location: file, NodeName: nodeName})
		if len(m.Pods) == 0 {
			continue // TestCorpus has the reason
		}
		var differences []difference
		for _, name := range changes(tree(t, m.Pods[0]), tree(t, theirs), "") {
			differences = append(differences, difference{field: name})
		}
		if rest := entries.explain(differences, nil, nil); len(rest) > 0 {
			t.Errorf("%s: not intended: %v\n%s", d.name, rest, d.text)
		}
	}
	for name := range want {
		t.Errorf("the kubelet does not run pod %s", name)
	}
}

// fileSource returns the pods that a source of the kubelet reads from a directory.
func fileSource[T any](source func(klog.Logger, string, types.NodeName, time.Duration, chan<- T), directory string) []*v1.Pod {
	updates := make(chan T, 8)
	source(logr.Discard(), directory, nodeName, time.Hour, updates)
	return podsOf(<-updates)
}
