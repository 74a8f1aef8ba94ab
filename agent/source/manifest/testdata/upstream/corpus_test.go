package upstream

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// document is a manifest of the corpus.
type document struct {
	name string
	text []byte
	// tree is nil for a document that is not made of a case.
	tree map[string]any
	// accepted is what the kubelet does with the pod, apart from references to
	// objects of the API. It is nil if that is not known beforehand.
	accepted *bool
}

// cases are the cases of one file below corpus, by their names. A case is merged
// into a pod with one container: its keys are "metadata", "spec", "container" for
// the first container, and "init" for an init container, which the pod has only
// then.
type cases struct {
	Accepted map[string]map[string]any `json:"accepted"`
	Rejected map[string]map[string]any `json:"rejected"`
}

// corpus returns the documents of the directory corpus, in a fixed order.
func corpus(t *testing.T) (documents []document) {
	t.Helper()
	files, err := filepath.Glob("corpus/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no corpus: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var c cases
		if err := yaml.UnmarshalStrict(text, &c); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		subject := strings.TrimSuffix(filepath.Base(file), ".yaml")
		for accepted, group := range map[bool]map[string]map[string]any{true: c.Accepted, false: c.Rejected} {
			for name, change := range group {
				tree := podOf(t, change)
				text, err := yaml.Marshal(tree)
				if err != nil {
					t.Fatal(err)
				}
				documents = append(documents, document{name: subject + ": " + name, text: text, tree: tree, accepted: &accepted})
			}
		}
	}
	slices.SortFunc(documents, func(a, b document) int { return strings.Compare(a.name, b.name) })
	for i := 1; i < len(documents); i++ {
		if documents[i].name == documents[i-1].name {
			t.Errorf("%s is accepted and rejected", documents[i].name)
		}
	}
	return documents
}

// podOf returns the pod of a case.
func podOf(t *testing.T, change map[string]any) map[string]any {
	t.Helper()
	container := map[string]any{"name": "c", "image": "i"}
	spec := map[string]any{"containers": []any{container}}
	p := map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "p"}, "spec": spec}
	for key, value := range change {
		change, ok := value.(map[string]any)
		if !ok {
			t.Fatalf("%s is not a map", key)
		}
		switch key {
		case "metadata":
			merge(p["metadata"].(map[string]any), change)
		case "container":
			merge(container, change)
		case "init":
			init := map[string]any{"name": "first", "image": "i"}
			merge(init, change)
			spec["initContainers"] = []any{init}
		case "spec":
		default:
			t.Fatalf("unknown key %q of a case", key)
		}
	}
	if change, ok := change["spec"].(map[string]any); ok {
		merge(spec, change)
	}
	return p
}

// merge merges maps into maps, and removes what is null.
func merge(into, change map[string]any) {
	for key, value := range change {
		old, both := into[key].(map[string]any)
		value, isMap := value.(map[string]any)
		switch {
		case both && isMap:
			merge(old, value)
		case change[key] == nil:
			delete(into, key)
		default:
			into[key] = change[key]
		}
	}
}

// seeds returns the inputs of the tests and the seeds of the fuzz targets of
// agent/source/manifest.
func seeds(t *testing.T) (documents []document) {
	t.Helper()
	for _, pattern := range []string{"../*.in.yaml", "../fuzz/FuzzManifest/*", "../fuzz/FuzzSpec/*"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("no files %s: %v", pattern, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(pattern, "fuzz") {
				text = argument(t, file, text)
			}
			if strings.Contains(pattern, "FuzzSpec") {
				text = slices.Concat([]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":`), text, []byte(`}`))
			}
			documents = append(documents, document{name: file, text: text})
		}
	}
	return documents
}

// argument returns the argument in a file of a fuzz target.
func argument(t *testing.T, file string, text []byte) []byte {
	t.Helper()
	_, value, _ := strings.Cut(string(text), "\n[]byte(")
	value, ok := strings.CutSuffix(strings.TrimSpace(value), ")")
	value, err := strconv.Unquote(value)
	if !ok || err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return []byte(value)
}

// mutator changes pods at random. Values come from the corpus: a field gets a value
// that some pod has in a field of that name.
type mutator struct {
	random  *rand.Rand
	objects []map[string]any
	values  map[string][]any
}

func newMutator(documents []document, seed uint64) *mutator {
	m := &mutator{random: rand.New(rand.NewPCG(seed, 0)), values: make(map[string][]any)}
	for _, d := range documents {
		m.collect(d.tree)
	}
	return m
}

func (m *mutator) collect(value any) {
	switch value := value.(type) {
	case map[string]any:
		if len(value) > 0 {
			m.objects = append(m.objects, value)
		}
		for _, key := range slices.Sorted(maps.Keys(value)) {
			m.values[key] = append(m.values[key], value[key])
			m.collect(value[key])
		}
	case []any:
		for _, child := range value {
			m.collect(child)
		}
	}
}

// strange are values for a field of any type.
var strange = []any{nil, "", " ", "a", "A", "a/b", "../a", "a\nb", ".", "-1", int64(-1), int64(0), int64(1), int64(1 << 31), int64(1 << 40), 1.5, true, false, []any{}, map[string]any{}}

// mutate returns a changed copy of a pod.
func (m *mutator) mutate(tree map[string]any) map[string]any {
	tree = clone(tree).(map[string]any)
	for range 1 + m.random.IntN(3) {
		m.change(tree)
	}
	return tree
}

// change makes one change to a map or list at a random depth below the pod's
// metadata or spec.
func (m *mutator) change(tree map[string]any) {
	var node any = tree[[]string{"metadata", "spec", "spec", "spec"}[m.random.IntN(4)]]
	for {
		inner := children(node)
		if len(inner) == 0 || m.random.IntN(4) == 0 {
			break
		}
		node = inner[m.random.IntN(len(inner))]
	}
	switch node := node.(type) {
	case map[string]any:
		m.changeMap(node)
	case []any:
		m.changeList(node)
	}
}

// children returns the maps and lists in a map or list.
func children(node any) (inner []any) {
	keep := func(value any) {
		switch value.(type) {
		case map[string]any, []any:
			inner = append(inner, value)
		}
	}
	switch node := node.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(node)) {
			keep(node[key])
		}
	case []any:
		for _, value := range node {
			keep(value)
		}
	}
	return inner
}

func (m *mutator) changeMap(node map[string]any) {
	keys := slices.Sorted(maps.Keys(node))
	switch n := m.random.IntN(20); {
	case n < 3 && len(keys) > 0:
		delete(node, keys[m.random.IntN(len(keys))])
	case n < 15 && len(keys) > 0:
		key := keys[m.random.IntN(len(keys))]
		node[key] = m.value(key)
	case n == 15 && len(keys) > 0:
		node[keys[m.random.IntN(len(keys))]] = strange[m.random.IntN(len(strange))]
	default:
		key := m.key(keys)
		node[key] = m.value(key)
	}
}

// key returns a key of an object of some pod that has one of the keys, if chance
// finds such an object.
func (m *mutator) key(keys []string) string {
	object := m.objects[m.random.IntN(len(m.objects))]
	for range 100 {
		if slices.ContainsFunc(keys, func(key string) bool { _, ok := object[key]; return ok }) {
			break
		}
		object = m.objects[m.random.IntN(len(m.objects))]
	}
	all := slices.Sorted(maps.Keys(object))
	return all[m.random.IntN(len(all))]
}

func (m *mutator) value(key string) any {
	values := m.values[key]
	if len(values) == 0 {
		return strange[m.random.IntN(len(strange))]
	}
	return clone(values[m.random.IntN(len(values))])
}

// changeList exchanges or repeats an item.
func (m *mutator) changeList(node []any) {
	if len(node) == 0 {
		return
	}
	node[m.random.IntN(len(node))] = clone(node[m.random.IntN(len(node))])
}

func clone(value any) any {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	var out any
	if err := yaml.Unmarshal(text, &out); err != nil {
		panic(err)
	}
	return out
}
