package netlink

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Error is what the kernel says of one message. It unwraps to the unix.Errno.
type Error struct {
	// Index is the message's place among those that were sent together.
	Index int
	// Errno is the kernel's.
	Errno unix.Errno
	// Text is the kernel's explanation (NLMSGERR_ATTR_MSG), mostly "".
	Text string
}

// Error is the errno's text, with the kernel's explanation.
func (e *Error) Error() string {
	if e.Text == "" {
		return e.Errno.Error()
	}
	return fmt.Sprintf("%s (%s)", e.Errno.Error(), e.Text)
}

// Unwrap is the errno.
func (e *Error) Unwrap() error { return e.Errno }

// verdict reads an NLMSG_ERROR: nil is an acknowledgement.
func verdict(m message) (*Error, error) {
	if len(m.payload) < 4 {
		return nil, errShort
	}
	code := int32(order.Uint32(m.payload))
	if code == 0 {
		return nil, nil
	}
	e := &Error{Errno: unix.Errno(-code)}
	if m.flags&unix.NLM_F_ACK_TLVS == 0 || len(m.payload) < 4+headerLen {
		return e, nil
	}
	// Behind the code stands the header of what was asked, with all of it
	// unless the answer is capped; explanations follow.
	skip := 4 + headerLen
	if m.flags&unix.NLM_F_CAPPED == 0 {
		skip = 4 + align(int(order.Uint32(m.payload[4:])))
	}
	if skip >= 4+headerLen && skip <= len(m.payload) {
		e.Text = Text(Attribute(m.payload[skip:], unix.NLMSGERR_ATTR_MSG))
	}
	return e, nil
}
