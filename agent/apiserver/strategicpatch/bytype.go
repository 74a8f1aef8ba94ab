package strategicpatch

// ByType finds conditions by their type; unique is false if one stands twice,
// and cannot be told apart by it.
func ByType(list []any) (found map[string]map[string]any, unique bool) {
	found = make(map[string]map[string]any, len(list))
	for _, c := range list {
		found[TypeOf(c)], _ = c.(map[string]any)
	}
	return found, len(found) == len(list)
}

// TypeOf is the type of a condition; empty for what has none.
func TypeOf(condition any) string {
	object, _ := condition.(map[string]any)
	kind, _ := object["type"].(string)
	return kind
}
