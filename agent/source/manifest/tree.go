package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// readTree decodes a pod's text into plain maps, slices, strings and
// json.Numbers, without any conversion.
func readTree(text []byte) (map[string]any, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var tree map[string]any
	if err := decoder.Decode(&tree); err != nil {
		return nil, fmt.Errorf("decode object: %w", err)
	}
	if tree == nil {
		return nil, errors.New("not an object")
	}
	return tree, nil
}

// Bounds of a document. Parsing takes up to a hundred times the size of the text:
// without these bounds a text of 3 MB could exhaust the memory of a small board.
const (
	maxValues = 100_000 // in a document
	maxItems  = 4096    // in an array
)

var errTooComplex = fmt.Errorf("more than %d values", maxValues)

// checkSize bounds the number of values of a YAML or JSON text. It counts
// cheaply and never too few.
func checkSize(text []byte) error {
	n := 0
	for _, b := range text {
		if b == '\n' || b == ',' || b == '[' || b == '{' {
			n++
		}
	}
	if n > maxValues {
		return errTooComplex
	}
	return nil
}

// checkTree rejects arrays that are too long and quantities that are expensive
// to parse.
func checkTree(value any, path *field.Path) error {
	switch value := value.(type) {
	case map[string]any:
		for key, child := range value {
			at := path.Child(key)
			if quantityKeys[key] && !inMetadata(path) {
				if err := checkQuantity(child, at); err != nil {
					return err
				}
			}
			if err := checkTree(child, at); err != nil {
				return err
			}
		}
	case []any:
		if len(value) > maxItems {
			return field.TooMany(path, len(value), maxItems)
		}
		for i, child := range value {
			if err := checkTree(child, path.Index(i)); err != nil {
				return err
			}
		}
	}
	return nil
}

// Bounds of a written quantity. The parser of
// k8s.io/apimachinery/pkg/api/resource raises ten to the exponent and can run
// for hours.
const (
	maxExponent       = 30
	maxQuantityLength = 64
)

// quantityKeys are the fields of a pod whose value is a quantity or a map of
// quantities.
var quantityKeys = map[string]bool{
	"limits": true, "requests": true, "overhead": true, "sizeLimit": true,
	"divisor": true, "allocatedResources": true, "capacity": true,
}

// inMetadata reports whether a path is below metadata, which has no quantities: a
// label may be called limits.
func inMetadata(path *field.Path) bool {
	return path != nil && path.Root().String() == "metadata"
}

func checkQuantity(value any, path *field.Path) *field.Error {
	var text string
	switch value := value.(type) {
	case map[string]any:
		for name, child := range value {
			if _, deeper := child.(map[string]any); deeper {
				continue
			}
			if err := checkQuantity(child, path.Key(name)); err != nil {
				return err
			}
		}
		return nil
	case string:
		text = value
	case json.Number:
		text = value.String()
	default:
		return nil
	}
	// Anything else is not a quantity, such as the value of a label in a selector.
	text = strings.TrimSpace(text)
	if digits := strings.TrimLeft(text, "+-."); digits == "" || digits[0] < '0' || digits[0] > '9' {
		return nil
	}
	if len(text) > maxQuantityLength {
		return field.TooLong(path, "", maxQuantityLength)
	}
	_, exponent, ok := strings.Cut(strings.ToLower(text), "e")
	if !ok || exponent == "" || exponent == "i" {
		return nil
	}
	if n, err := strconv.Atoi(exponent); err != nil || n < -maxExponent || n > maxExponent {
		return field.Invalid(path, text, fmt.Sprintf("must have an exponent from -%d to %d", maxExponent, maxExponent))
	}
	return nil
}
