package ginkgo

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestException(t *testing.T) {
	var x Exception
	if err := json.Unmarshal([]byte(`{"match": "^a", "reason": "it\nis  slow"}`), &x); err != nil || x.Match.String() != "^a" || x.Reason != "it is slow" {
		t.Errorf("%v: %+v", err, x)
	}
	for _, c := range []struct{ what, text, want string }{
		{"an unknown key", `{"match": "a", "reason": "b", "because": "c"}`, "unknown field"},
		{"no expression", `{"reason": "it is slow"}`, "empty"},
		{"an expression that does not compile", `{"match": "(", "reason": "b"}`, "missing closing"},
		{"no reason", `{"match": "a"}`, "no reason"},
		{"a blank reason", `{"match": "a", "reason": " "}`, "no reason"},
	} {
		if err := json.Unmarshal([]byte(c.text), new(Exception)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.what, err, c.want)
		}
	}
}
