package cri

import (
	"strings"
	"testing"
	"time"
)

func TestSocketPath(t *testing.T) {
	tests := []struct{ in, want string }{
		{"unix:///run/containerd/containerd.sock", "/run/containerd/containerd.sock"},
		{"unix:/run/x.sock", "/run/x.sock"},
		{"/run/x.sock", "/run/x.sock"},
		{"unix:////run//x.sock", "/run/x.sock"},
		{"/" + strings.Repeat("x", 106), "/" + strings.Repeat("x", 106)},
		{"", ""},
		{"unix://", ""},
		{"unix:///", ""},
		{"unix://run/x.sock", ""},
		{"run/x.sock", ""},
		{"tcp://127.0.0.1:1234", ""},
		{"npipe:////./pipe/containerd", ""},
		{"/run/x\x00.sock", ""},
		{"/" + strings.Repeat("x", 107), ""},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			got, err := SocketPath(tt.in)
			if got != tt.want || (err == nil) != (tt.want != "") {
				t.Errorf("path %q, error %v; want %q", got, err, tt.want)
			}
		})
	}
}

func TestWholeSeconds(t *testing.T) {
	for in, want := range map[time.Duration]int64{
		0: 0, 1: 1, time.Millisecond: 1, time.Second: 1, time.Second + 1: 2, 1<<63 - 1: 9223372037,
	} {
		if got := wholeSeconds(in); got != want {
			t.Errorf("%v is %d seconds, want %d", in, got, want)
		}
	}
}
