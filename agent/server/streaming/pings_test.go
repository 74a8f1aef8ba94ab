package streaming

import (
	"strings"
	"testing"
)

func TestPings(t *testing.T) {
	const (
		long  = "\x82\x7f\x00\x00\x00\x00\x00\x00\x00\x80"
		wider = "\x89\xfe\x00\x05\x01\x02\x03\x04ping!"
	)
	for name, tt := range map[string]struct {
		webSocket bool
		bytes     string
		only      bool
	}{
		"SPDY: a ping":                   {false, spdyPingFrame, true},
		"SPDY: pings":                    {false, strings.Repeat(spdyPingFrame, 3), true},
		"SPDY: data":                     {false, spdyDataFrame + "abc", false},
		"SPDY: data between pings":       {false, spdyPingFrame + spdyDataFrame + "abc" + spdyPingFrame, false},
		"SPDY: data that look like it":   {false, "\x00\x00\x00\x06\x00\x00\x00\x00", false},
		"SPDY: another control frame":    {false, "\x80\x03\x00\x07\x00\x00\x00\x08\x00\x00\x00\x01\x00\x00\x00\x00", false},
		"SPDY: a ping of much":           {false, "\x80\x03\x00\x06\x00\x00\x80\x00" + strings.Repeat("x", 0x8000) + spdyPingFrame, true},
		"WebSocket: a ping":              {true, wsPingFrame, true},
		"WebSocket: a pong":              {true, wsPongFrame, true},
		"WebSocket: both":                {true, wsPongFrame + wsPingFrame + wsPongFrame, true},
		"WebSocket: a ping of length 16": {true, wider + wsPingFrame, true},
		"WebSocket: data":                {true, wsDataFrame, false},
		"WebSocket: data of length 64":   {true, long + strings.Repeat(wsPingFrame, 10), false},
		"WebSocket: its end":             {true, wsPingFrame + "\x88\x00", false},
		"nothing":                        {false, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, size := range []int{1, 2, 3, 7, 8, 9, len(tt.bytes) + 1} {
				p, only := pingParser{webSocket: tt.webSocket}, true
				for rest := tt.bytes; rest != ""; {
					n := min(size, len(rest))
					only = p.onlyPings([]byte(rest[:n])) && only
					rest = rest[n:]
				}
				if only != tt.only {
					t.Errorf("%v by %d", only, size)
				}
			}
		})
	}
}

// FuzzPings: the division of the data into reads does not change the classification.
func FuzzPings(f *testing.F) {
	f.Add(false, []byte(spdyPingFrame+spdyDataFrame), 3)
	f.Add(true, []byte(wsPingFrame+wsDataFrame+wsPongFrame), 5)
	f.Fuzz(func(t *testing.T, webSocket bool, b []byte, cut int) {
		if cut < 0 || cut > len(b) {
			cut = len(b) / 2
		}
		whole, parts := pingParser{webSocket: webSocket}, pingParser{webSocket: webSocket}
		one := whole.onlyPings(b)
		first, second := parts.onlyPings(b[:cut]), parts.onlyPings(b[cut:])
		if one != (first && second) {
			t.Errorf("%v at once, %v and %v in parts", one, first, second)
		}
		if whole.ping != parts.ping || whole.left != parts.left || whole.have != parts.have {
			t.Errorf("%+v at once, %+v in parts", whole, parts)
		}
	})
}
