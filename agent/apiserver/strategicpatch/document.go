package strategicpatch

import (
	"bytes"
	"encoding/json"
)

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
