package wire

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRoundTrip(t *testing.T) {
	frames := []Frame{
		{Kind: Hello},
		{Kind: Exec, ID: 7, Payload: []byte(`{"argv":["true"]}`)},
		{Kind: Output, ID: 1<<32 - 1, Payload: bytes.Repeat([]byte{0xff}, MaxPayload)},
	}
	var b bytes.Buffer
	for _, f := range frames {
		if err := Write(&b, f); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range frames {
		got, err := Read(&b)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
	}
	if _, err := Read(&b); !errors.Is(err, io.EOF) {
		t.Errorf("after the last frame: %v, want EOF", err)
	}
}

func TestRefusals(t *testing.T) {
	if err := Write(io.Discard, Frame{Payload: make([]byte, MaxPayload+1)}); !errors.Is(err, ErrFraming) {
		t.Errorf("write of a too large payload: %v", err)
	}
	tests := []struct {
		name string
		in   string
		want error
	}{
		{"empty", "", io.EOF},
		{"cut header", "TB\x01", io.ErrUnexpectedEOF},
		{"no payload", "TB\x01\x00\x00\x00\x00\x01\x00\x00\x00\x02", io.ErrUnexpectedEOF},
		{"cut payload", "TB\x01\x00\x00\x00\x00\x01\x00\x00\x00\x02x", io.ErrUnexpectedEOF},
		{"wrong magic", "XB\x01\x00\x00\x00\x00\x01\x00\x00\x00\x00", ErrFraming},
		{"reserved byte", "TB\x01\x01\x00\x00\x00\x01\x00\x00\x00\x00", ErrFraming},
		{"too large", "TB\x01\x00\x00\x00\x00\x01\x00\x01\x00\x01", ErrFraming},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := Read(bytes.NewReader([]byte(tt.in))); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("TB\x01\x00\x00\x00\x00\x01\x00\x00\x00\x02xy"))
	f.Add([]byte("console noise"))
	f.Fuzz(func(t *testing.T, in []byte) {
		r := bytes.NewReader(in)
		fr, err := Read(r)
		if err != nil {
			return
		}
		var b bytes.Buffer
		if err := Write(&b, fr); err != nil {
			t.Fatalf("a frame that was read cannot be written: %v", err)
		}
		if used := in[:len(in)-r.Len()]; !bytes.Equal(used, b.Bytes()) {
			t.Errorf("read % x, wrote % x", used, b.Bytes())
		}
	})
}
