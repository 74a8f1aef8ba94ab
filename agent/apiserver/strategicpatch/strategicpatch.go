// Package strategicpatch writes strategic merge patches: the difference of two JSON
// documents, the directives for lists, and conditions, which merge by their type.
// The caller must know how each list merges.
//
// The code is not upstream's, because k8s.io/apimachinery/pkg/util/strategicpatch
// supports every type and links the OpenAPI machinery for it: 39 packages and 2.7
// MB of the arm64 binary. The keys are those of its patch.go. The packages that
// write patches compare them with upstream in their testdata/strategicpatch.
package strategicpatch

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
)

// ByType returns conditions by their type. unique is false if a type occurs twice.
func ByType(list []any) (found map[string]map[string]any, unique bool) {
	found = make(map[string]map[string]any, len(list))
	for _, c := range list {
		found[TypeOf(c)], _ = c.(map[string]any)
	}
	return found, len(found) == len(list)
}

// TypeOf returns the type of a condition, "" if it has none.
func TypeOf(condition any) string {
	object, _ := condition.(map[string]any)
	kind, _ := object["type"].(string)
	return kind
}

// Document returns an object as a JSON document, with numbers in their written form
// (json.Number). The error is that of encoding/json; objects from an API server or
// from this agent cause none.
func Document(object any) (map[string]any, error) {
	data, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var doc map[string]any
	err = dec.Decode(&doc)
	return doc, err
}

// Take removes a list from a document and returns it; nil if there is none.
func Take(doc map[string]any, key string) []any {
	list, _ := doc[key].([]any)
	delete(doc, key)
	return list
}

// Keys of a strategic merge patch.
const (
	// Directive selects what the patch does with the object that contains it.
	Directive = "$patch"
	// Order with a list's key appended gives the order of the merged list.
	Order = "$setElementOrder/"
)

// ReplaceList returns list with the directive to replace the former list instead of
// merging the two. It may reuse the memory of list.
func ReplaceList(list []any) []any {
	return append(list, map[string]any{Directive: "replace"})
}

// Diff returns the patch from before to after: null for removed keys, merged
// objects, replaced lists. It is empty, never nil, if nothing differs. It shares
// new values with after.
func Diff(before, after map[string]any) map[string]any {
	patch := make(map[string]any)
	for key, is := range after {
		was, ok := before[key]
		old, bothObjects := was.(map[string]any)
		fresh, isObject := is.(map[string]any)
		switch {
		case !ok:
			patch[key] = is
		case bothObjects && isObject:
			if d := Diff(old, fresh); len(d) > 0 {
				patch[key] = d
			}
		case !reflect.DeepEqual(was, is):
			patch[key] = is
		}
	}
	for key := range before {
		if _, ok := after[key]; !ok {
			patch[key] = nil
		}
	}
	return patch
}

// DiffConditions returns the patch from one set of conditions to another, empty if
// nothing differs. If a type occurs twice it does not identify a condition: the patch
// then replaces the whole set, and byType is false. nulls means that a new condition keeps
// the null of a time that is not set, which is redundant.
func DiffConditions(before, after []any, nulls bool) (list []any, byType bool) {
	old, unique := ByType(before)
	fresh, freshUnique := ByType(after)
	if !unique || !freshUnique {
		if reflect.DeepEqual(before, after) {
			return nil, false
		}
		return ReplaceList(after), false
	}
	for _, c := range before {
		if _, ok := fresh[TypeOf(c)]; !ok {
			list = append(list, map[string]any{"type": TypeOf(c), Directive: "delete"})
		}
	}
	for _, c := range after {
		kind := TypeOf(c)
		was, ok := old[kind]
		d := Diff(was, fresh[kind])
		if !ok && !nulls {
			maps.DeleteFunc(d, func(_ string, value any) bool { return value == nil })
		}
		if len(d) > 0 {
			d["type"] = kind
			list = append(list, d)
		}
	}
	return list, true
}
