package strategicpatch

// ByType returns conditions by their type. unique is false if a type occurs twice,
// so that it does not identify a condition.
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
