package strategicpatch

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDiff(t *testing.T) {
	for _, tt := range []struct{ name, before, after, want string }{
		{"nothing", `{"a":1,"b":{"c":[1]}}`, `{"a":1,"b":{"c":[1]}}`, `{}`},
		{"new", `{}`, `{"a":{"b":1}}`, `{"a":{"b":1}}`},
		{"gone", `{"a":1}`, `{}`, `{"a":null}`},
		{"changed", `{"a":1,"b":2}`, `{"a":1,"b":3}`, `{"b":3}`},
		{"inside", `{"a":{"b":1,"c":2,"d":3}}`, `{"a":{"b":1,"c":4}}`, `{"a":{"c":4,"d":null}}`},
		{"list is replaced", `{"a":[1,2]}`, `{"a":[2]}`, `{"a":[2]}`},
		{"other kind", `{"a":{"b":1}}`, `{"a":[1]}`, `{"a":[1]}`},
		{"null for an object", `{"a":{"b":1}}`, `{"a":null}`, `{"a":null}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := json.Marshal(Diff(document(t, tt.before), document(t, tt.after)))
			if err != nil || string(got) != tt.want {
				t.Errorf("%s, %v; want %s", got, err, tt.want)
			}
		})
	}
}

func document(t *testing.T, text string) map[string]any {
	t.Helper()
	doc, err := Document(json.RawMessage(text))
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestDocumentKeepsNumbersAsTheyAreWritten(t *testing.T) {
	doc, err := Document(map[string]any{"n": int64(math.MaxInt64)})
	if err != nil {
		t.Fatal(err)
	}
	if got := doc["n"]; got != json.Number("9223372036854775807") {
		t.Errorf("%T %v", got, got)
	}
	if _, err := Document(math.Inf(1)); err == nil {
		t.Error("what JSON cannot say is a document")
	}
}

func TestTake(t *testing.T) {
	doc := document(t, `{"list":[1],"text":"x"}`)
	if got := Take(doc, "list"); len(got) != 1 {
		t.Errorf("took %v", got)
	}
	if got := Take(doc, "text"); got != nil {
		t.Errorf("took %v, which is no list", got)
	}
	if got := Take(doc, "none"); got != nil {
		t.Errorf("took %v", got)
	}
	if len(doc) != 0 {
		t.Errorf("left %v", doc)
	}
}

func TestByType(t *testing.T) {
	list := Take(document(t, `{"c":[{"type":"Ready","status":"True"},{"type":"Other"}]}`), "c")
	found, unique := ByType(list)
	if !unique || len(found) != 2 || found["Ready"]["status"] != "True" {
		t.Errorf("%v, unique %t", found, unique)
	}
	if _, unique = ByType(append(list, map[string]any{"type": "Ready"})); unique {
		t.Error("a type that stands twice is unique")
	}
	if TypeOf("text") != "" || TypeOf(map[string]any{"type": 1}) != "" {
		t.Error("what has no type has one")
	}
}

func TestReplaced(t *testing.T) {
	want := []any{"a", map[string]any{"$patch": "replace"}}
	if diff := cmp.Diff(want, ReplaceList([]any{"a"})); diff != "" {
		t.Error(diff)
	}
}
