// Package document cuts files into YAML documents. It owns what a text is and
// how large one document may be: what the YAML parser makes of a text can be
// a hundred times as large, and without bounds one file could take all of a
// small board's memory.
package document

import (
	"bytes"
	"errors"
	"fmt"
)

// MaxSize is the largest single document in bytes: what an API server takes
// in one request (MaxRequestBodyBytes in k8s.io/apiserver).
const MaxSize = 3 << 20

var (
	// ErrEmpty says that there is no document in a file.
	ErrEmpty = errors.New("it is empty")
	// ErrBinary says that a file is no text.
	ErrBinary = errors.New("it is binary, not YAML or JSON text")
)

var byteOrderMark = []byte("\xef\xbb\xbf")

// Split cuts a text into its non-empty YAML documents, at most as many as
// most. A line that begins with "---" or "..." and then ends or has a space is
// a marker wherever it stands (YAML 1.2, 9.1.2); JSON text has no such line.
// The documents share data's memory.
func Split(data []byte, most int) ([][]byte, error) {
	data = bytes.TrimPrefix(data, byteOrderMark)
	if bytes.IndexByte(data, 0) >= 0 {
		return nil, ErrBinary
	}
	var documents [][]byte
	for start := 0; start < len(data); {
		end := nextMarker(data, start)
		if document := data[start:end]; !blank(document) {
			if len(documents) == most {
				return nil, fmt.Errorf("it has more than %d documents", most)
			}
			// "..." ends a document and cannot begin one.
			documents = append(documents, bytes.TrimPrefix(document, []byte("...")))
		}
		start = end
	}
	if len(documents) == 0 {
		return nil, ErrEmpty
	}
	for i, document := range documents {
		if len(document) > MaxSize {
			return nil, fmt.Errorf("document %d has %d bytes, more than the %d that one object may have", i+1, len(document), MaxSize)
		}
	}
	return documents, nil
}

// nextMarker is the offset of the first marker line after the line at start,
// or the end of data.
func nextMarker(data []byte, start int) int {
	for at := start; ; {
		newline := bytes.IndexByte(data[at:], '\n')
		if newline < 0 {
			return len(data)
		}
		at += newline + 1
		if isMarker(data[at:]) {
			return at
		}
	}
}

func isMarker(text []byte) bool {
	if !bytes.HasPrefix(text, []byte("---")) && !bytes.HasPrefix(text, []byte("...")) {
		return false
	}
	return len(text) == 3 || bytes.IndexByte([]byte(" \t\r\n"), text[3]) >= 0
}

// blank says whether a document has nothing but space, comments, directives
// and its own marker.
func blank(document []byte) bool {
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
