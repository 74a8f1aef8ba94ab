package journal

import (
	"bytes"
	"testing"
)

// TestFind searches for a pattern at the boundary of two windows.
func TestFind(t *testing.T) {
	const size = 2*windowSize + 100
	places := []int{0, 1, size - len(magic), size - len(magic) + 1, -1}
	for at := windowSize - 2*len(magic); at < windowSize+2; at++ {
		places = append(places, at, at+windowSize)
	}
	for _, at := range places {
		data := bytes.Repeat(magic[:1], size)
		want := int64(at)
		if at >= 0 {
			copy(data[at:], magic)
		}
		if at < 0 || at+len(magic) > size {
			want = -1
		}
		for _, from := range []int64{0, 1, 13, max(want, 0)} {
			w := window{f: bytes.NewReader(data), size: size, buf: make([]byte, windowSize)}
			expected := want
			if from > want {
				expected = -1
			}
			if got, err := w.find(magic, from); got != expected || err != nil {
				t.Errorf("pattern at %d, from %d: %d, %v", at, from, got, err)
			}
		}
	}
}

// TestWindowOfAFileThatShrank checks for an error instead of a panic.
func TestWindowOfAFileThatShrank(t *testing.T) {
	w := window{f: bytes.NewReader(make([]byte, 10)), size: 20, buf: make([]byte, 20)}
	if _, err := w.at(5, 10); err == nil {
		t.Error("no error")
	}
	if _, err := w.find(magic, 0); err == nil {
		t.Error("no error")
	}
}
