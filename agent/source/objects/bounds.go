package objects

import (
	"fmt"

	"github.com/tinylet/tinylet/agent/config/document"
)

// Bounds of a file, far beyond any real one.
const (
	// maxFile is the largest file in bytes.
	maxFile = 10 << 20
	// maxDocument is the largest document in bytes.
	maxDocument = document.MaxSize
	// maxDocuments is how many documents, and how many objects in lists, a
	// file may have.
	maxDocuments = 1000
	// maxMarks is how many lines, commas and brackets a YAML document may
	// have.
	maxMarks = 300_000
)

var errMany = fmt.Errorf("it has more than %d documents or objects", maxDocuments)

// marks counts what at most begins a value.
func marks(text []byte) int {
	n := 0
	for _, b := range text {
		if b == '\n' || b == ',' || b == '[' || b == '{' {
			n++
		}
	}
	return n
}
