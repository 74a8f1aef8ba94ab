package document

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSplit(t *testing.T) {
	for _, row := range []struct {
		name, text string
		want       []string
		err        string
	}{
		{"one", "a: 1\n", []string{"a: 1\n"}, ""},
		{"with a byte order mark", "\xef\xbb\xbfa: 1\n", []string{"a: 1\n"}, ""},
		{"two", "a: 1\n---\nb: 2\n", []string{"a: 1\n", "---\nb: 2\n"}, ""},
		{"marker with text", "--- a\n--- b", []string{"--- a\n", "--- b"}, ""},
		{"an end in between", "a: 1\n...\n# nothing\n---\nb: 2\n", []string{"a: 1\n", "---\nb: 2\n"}, ""},
		{"text after an end", "a: 1\n...\nb: 2\n", []string{"a: 1\n", "\nb: 2\n"}, ""},
		{"no marker", "a: |\n ---\n ---x\n---x: y\n", []string{"a: |\n ---\n ---x\n---x: y\n"}, ""},
		{"JSON", "{\"a\": \"---\"}", []string{"{\"a\": \"---\"}"}, ""},
		{"nothing", "", nil, "it is empty"},
		{"comments alone", "# a\n---\n%YAML 1.2\n---\n  \n", nil, "it is empty"},
		{"binary", "a: 1\x00", nil, "it is binary"},
		{"too many", "a\n---\nb\n---\nc\n---\nd\n", nil, "it has more than 3 documents"},
		{"too large", "a\n---\n" + strings.Repeat("x", MaxSize), nil, "document 2 has"},
	} {
		t.Run(row.name, func(t *testing.T) {
			got, err := Split([]byte(row.text), 3)
			if row.err != "" {
				if err == nil || !strings.Contains(err.Error(), row.err) {
					t.Fatalf("error %v, want %q in it", err, row.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var texts []string
			for _, document := range got {
				texts = append(texts, string(document))
			}
			if diff := cmp.Diff(row.want, texts); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func FuzzSplit(f *testing.F) {
	for _, seed := range []string{"a: 1\n---\nb: 2\n", "...\n...\n", "\xef\xbb\xbf---\n", "---", "{}\n--- x\r\n..."} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		documents, err := Split(data, 10)
		if err != nil {
			return
		}
		rest := data
		for _, document := range documents {
			at := bytes.Index(rest, document)
			if at < 0 || len(document) == 0 {
				t.Fatalf("%q is not in what is left of %q", document, data)
			}
			rest = rest[at+len(document):]
		}
	})
}
