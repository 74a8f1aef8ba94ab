package strategicpatch

import (
	"bytes"
	"encoding/json"
)

// Document is an object as JSON has it, numbers as they are written. The
// error is that of encoding/json, which has none for an object that came from
// an API server or from this agent.
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

// Take takes a list out of a document; nil if there is none.
func Take(doc map[string]any, key string) []any {
	list, _ := doc[key].([]any)
	delete(doc, key)
	return list
}
