package streaming

import "encoding/binary"

// pings tells the pings of one direction of a session from all else that goes
// that way. Both protocols have them, and a client that sends one each five
// seconds for as long as it lives (k8s.io/client-go/tools/remotecommand) is not
// thereby in use. It reads the heads of frames and keeps nothing of them.
//
// SPDY: http://www.chromium.org/spdy/spdy-protocol/spdy-protocol-draft3-1,
// sections 2.2 and 2.6.5. WebSocket: RFC 6455, sections 5.2 and 5.5.2.
type pings struct {
	webSocket bool
	ping      bool // the frame that left is of
	left      uint64
	have      int
	head      [maxFrameHead]byte
}

const (
	spdyHead     = 8
	spdyPing     = 6
	maxFrameHead = 2 + 8 + 4 // of WebSocket, with its longest length and a mask
)

// only says whether what follows the bytes before is of nothing but pings. The
// head of a frame counts when all of it has come.
func (p *pings) only(b []byte) bool {
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

// headSize is how many bytes the head has, as far as can be told yet.
func (p *pings) headSize() int {
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

// begin reads a head that is whole.
func (p *pings) begin() {
	p.have = 0
	if !p.webSocket {
		p.ping = p.head[0]&0x80 != 0 && binary.BigEndian.Uint16(p.head[2:]) == spdyPing
		p.left = uint64(binary.BigEndian.Uint32(p.head[4:]) & 0xffffff)
		return
	}
	opcode := p.head[0] & 0x0f
	p.ping = opcode == 9 || opcode == 10 // a pong answers a ping
	switch size := p.head[1] & 0x7f; size {
	case 126:
		p.left = uint64(binary.BigEndian.Uint16(p.head[2:]))
	case 127:
		p.left = binary.BigEndian.Uint64(p.head[2:])
	default:
		p.left = uint64(size)
	}
}
