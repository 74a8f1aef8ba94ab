package streaming

import "encoding/binary"

// pingParser detects ping frames in one direction of a session. Both protocols have them. A
// client that sends a ping every five seconds (k8s.io/client-go/tools/remotecommand)
// must not keep an idle session open. pingParser parses the frame headers and buffers at
// most one of them. A WebSocket pong counts as a ping.
//
// SPDY: http://www.chromium.org/spdy/spdy-protocol/spdy-protocol-draft3-1,
// sections 2.2 and 2.6.5. WebSocket: RFC 6455, sections 5.2 and 5.5.2.
type pingParser struct {
	webSocket bool
	ping      bool   // the current frame is a ping
	left      uint64 // remaining payload bytes of the current frame
	have      int    // bytes in head
	head      [maxFrameHead]byte
}

const (
	spdyHead     = 8
	spdyPing     = 6
	maxFrameHead = 2 + 8 + 4 // WebSocket, with a 64-bit length and a mask
)

// onlyPings reports whether b has only bytes of pings. b continues the data of the previous
// calls. A frame header is classified after its last byte.
func (p *pingParser) onlyPings(b []byte) bool {
	only := true
	for len(b) > 0 {
		if p.left > 0 {
			n := min(uint64(len(b)), p.left)
			p.left -= n
			b = b[n:]
			only = only && p.ping
			continue
		}
		n := copy(p.head[p.have:p.headSize()], b)
		p.have += n
		b = b[n:]
		if p.have == p.headSize() {
			p.begin()
			only = only && p.ping
		}
	}
	return only
}

// headSize returns the size of the current frame header, as far as the received bytes
// determine it.
func (p *pingParser) headSize() int {
	if !p.webSocket {
		return spdyHead
	}
	if p.have < 2 {
		return 2
	}
	size := 2
	switch p.head[1] & 0x7f {
	case 126:
		size += 2
	case 127:
		size += 8
	}
	if p.head[1]&0x80 != 0 {
		size += 4
	}
	return size
}

// begin parses a complete frame header.
func (p *pingParser) begin() {
	p.have = 0
	if !p.webSocket {
		p.ping = p.head[0]&0x80 != 0 && binary.BigEndian.Uint16(p.head[2:]) == spdyPing
		p.left = uint64(binary.BigEndian.Uint32(p.head[4:]) & 0xffffff)
		return
	}
	opcode := p.head[0] & 0x0f
	p.ping = opcode == 9 || opcode == 10 // ping or pong
	switch size := p.head[1] & 0x7f; size {
	case 126:
		p.left = uint64(binary.BigEndian.Uint16(p.head[2:]))
	case 127:
		p.left = binary.BigEndian.Uint64(p.head[2:])
	default:
		p.left = uint64(size)
	}
}
