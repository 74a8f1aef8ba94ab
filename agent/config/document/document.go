// Package document splits files into YAML documents. It rejects binary files and
// bounds the size of a document: parsed YAML can be a hundred times as large as
// its text, and without a bound one file could exhaust the memory of a small board.
package document

import (
	"bytes"
	"errors"
	"fmt"
)

// MaxSize is the largest single document in bytes. It is the limit of an API
// server for one request (MaxRequestBodyBytes in k8s.io/apiserver).
const MaxSize = 3 << 20

var (
	// ErrEmpty means that a file has no document.
	ErrEmpty = errors.New("it is empty")
	// ErrBinary means that a file is not text.
	ErrBinary = errors.New("it is binary, not YAML or JSON text")
)

var byteOrderMark = []byte("\xef\xbb\xbf")

// Split splits a text into its non-empty YAML documents. It fails if there is none,
// or more than most, or one of more than MaxSize bytes. A line that begins with
// "---" or "...", followed by white space or the end of the line, is a marker
// anywhere in the text (YAML 1.2, 9.1.2). JSON text has no such line. The
// documents share the memory of data.
func Split(data []byte, most int) ([][]byte, error) {
	data = bytes.TrimPrefix(data, byteOrderMark)
	if bytes.IndexByte(data, 0) >= 0 {
		return nil, ErrBinary
	}
	var documents [][]byte
	for start := 0; start < len(data); {
		end := start
		for line := range bytes.Lines(data[start:]) {
			if end > start && isMarker(line) {
				break
			}
			end += len(line)
		}
		if document := data[start:end]; !isBlank(document) {
			if len(documents) == most {
				return nil, fmt.Errorf("it has more than %d documents", most)
			}
			// "..." ends a document. It is not valid at the beginning of one.
			documents = append(documents, bytes.TrimPrefix(document, []byte("...")))
		}
		start = end
	}
	if len(documents) == 0 {
		return nil, ErrEmpty
	}
	for i, document := range documents {
		if len(document) > MaxSize {
			return nil, fmt.Errorf("document %d has %d bytes, the maximum is %d", i+1, len(document), MaxSize)
		}
	}
	return documents, nil
}

func isMarker(text []byte) bool {
	if !bytes.HasPrefix(text, []byte("---")) && !bytes.HasPrefix(text, []byte("...")) {
		return false
	}
	return len(text) == 3 || bytes.IndexByte([]byte(" \t\r\n"), text[3]) >= 0
}

// isBlank reports whether a document has only white space, comments, directives and
// its own marker.
func isBlank(document []byte) bool {
	if isMarker(document) {
		document = document[3:]
	}
	for line := range bytes.Lines(document) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' && line[0] != '%' {
			return false
		}
	}
	return true
}
