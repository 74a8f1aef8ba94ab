package strategicpatch

import "reflect"

// Keys of a strategic merge patch.
const (
	// Directive says what becomes of the object that it stands in.
	Directive = "$patch"
	// Order and a list's key say in which order the merged list is to be.
	Order = "$setElementOrder/"
)

// Replaced is a list that takes the place of one that would be merged.
func Replaced(list []any) []any {
	return append(list, map[string]any{Directive: "replace"})
}

// Diff is what makes one object into another: null for what goes, objects
// merged, lists replaced. It is empty, never nil, if nothing differs, and
// shares what is new with after.
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
