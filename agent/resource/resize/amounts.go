package resize

import (
	"encoding/json"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// quantities is a resource list as in the checkpoint. Parsing and comparing 1e1000000
// takes nearly a second, and larger exponents minutes, so extreme amounts are
// rejected unparsed.
type quantities v1.ResourceList

func (a *quantities) UnmarshalJSON(text []byte) error {
	var list map[v1.ResourceName]string
	if err := json.Unmarshal(text, &list); err != nil {
		return err
	}
	if list == nil {
		return nil
	}
	*a = make(quantities, len(list))
	for name, given := range list {
		if !inRange(given) {
			return fmt.Errorf("%s: quantity out of range", name)
		}
		q, err := resource.ParseQuantity(given)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		(*a)[name] = q
	}
	return nil
}

// inRange reports whether the text has at most 64 bytes and at most two exponent
// digits.
func inRange(text string) bool {
	if len(text) > 64 {
		return false
	}
	i := strings.IndexAny(text, "eE")
	return i < 0 || len(strings.TrimLeft(text[i+1:], "+-")) <= 2
}

func allInRange(list v1.ResourceList) bool {
	for name := range list {
		q := list[name]
		if !inRange(q.String()) {
			return false
		}
	}
	return true
}
