package objects

import (
	"fmt"

	"github.com/tinylet/tinylet/agent/config/document"
)

// Bounds of a file, far beyond any real one.
const (
	// maxFile is the maximum size of a file in bytes.
	maxFile = 10 << 20
	// maxDocument is the maximum size of a document in bytes.
	maxDocument = document.MaxSize
	// maxDocuments bounds the documents of a file, and the objects in its
	// lists.
	maxDocuments = 1000
	// maxMarks bounds the lines, commas and brackets of a YAML document.
	maxMarks = 300_000
)

var errMany = fmt.Errorf("more than %d documents or objects", maxDocuments)

// marks counts the characters that can begin a value: an upper bound of the
// number of values.
func marks(text []byte) int {
	n := 0
	for _, b := range text {
		if b == '\n' || b == ',' || b == '[' || b == '{' {
			n++
		}
	}
	return n
}
