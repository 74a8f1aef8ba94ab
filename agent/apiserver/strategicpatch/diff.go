package strategicpatch

import "reflect"

// Keys of a strategic merge patch.
const (
	// Directive selects what the patch does with the object that contains it.
	Directive = "$patch"
	// Order with a list's key appended gives the order of the merged list.
	Order = "$setElementOrder/"
)

// ReplaceList returns a list that replaces one that would be merged. It may reuse the
// memory of list.
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
